// A C++ program that links torch: no dlopen at all, the wrapped main is the moment. Also built without PIE and under AddressSanitizer.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int fake_torch_state();

namespace {

// Runs before main; whether the plugin was started before it does not matter, that nothing breaks does.
struct Early {
  Early() : words{"con", "struc", "ted"} {}
  std::vector<std::string> words;
};
Early early;

void mark(const char* text) {
  const char* path = std::getenv("FAKE_LOG");
  if (path == nullptr) return;
  if (FILE* log = std::fopen(path, "a")) {
    std::fprintf(log, "%s\n", text);
    std::fclose(log);
  }
}

}  // namespace

int main(int argc, char** argv, char** envp) {
  mark("main");
  std::printf("%d %s %d %s%s%s torch %d\n", argc, argc > 1 ? argv[1] : "", envp[0] != nullptr, early.words[0].c_str(),
              early.words[1].c_str(), early.words[2].c_str(), fake_torch_state());
  try {
    throw argc + 40;
  } catch (int code) {
    return code;
  }
}
