// Prints the instruction levels of CPU and process: under an emulated CPU, the test compares them with what that CPU has.
#include <cstdio>
#include <string>

#include "configs/base/isa.h"

int main() {
  const std::string cpu(ipexrun::level_name(ipexrun::isa_of_cpu()));
  const std::string process(ipexrun::level_name(ipexrun::isa_of_process()));
  std::printf("%s %s\n", cpu.c_str(), process.c_str());
}
