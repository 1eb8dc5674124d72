// A small service loop in C++ around a TorchScript file. Plain libtorch; it knows nothing of ipexrun.
//
//   serve MODEL.pt --sizes 1,128 [--sizes ...] [--integers BELOW] [--calls N]
//
// One random tensor for each --sizes; with --integers they hold token numbers below that. Prints a checksum of the first result, and the
// time of a call.
#include <torch/script.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<int64_t> sizes_of(const std::string& text) {
  std::vector<int64_t> sizes;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) sizes.push_back(std::atoll(part.c_str()));
  return sizes;
}

torch::Tensor first_of(const torch::IValue& result) {
  if (result.isTensor()) return result.toTensor();
  if (result.isTuple()) return first_of(result.toTupleRef().elements()[0]);
  if (result.isList()) return first_of(result.toListRef()[0]);
  return first_of(result.toGenericDict().begin()->value());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::vector<int64_t>> inputs;
  int64_t integers = 0;
  int64_t calls = 200;
  bool right = argc % 2 == 0;  // a file, and pairs
  for (int i = 2; right && i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--sizes") {
      inputs.push_back(sizes_of(argv[i + 1]));
    } else if (option == "--integers") {
      integers = std::atoll(argv[i + 1]);
    } else if (option == "--calls") {
      calls = std::atoll(argv[i + 1]);
    } else {
      right = false;
    }
  }
  if (!right || inputs.empty() || calls < 1) {
    std::cerr << "usage: serve MODEL.pt --sizes 1,128 [--sizes ...] [--integers BELOW] [--calls N]\n";
    return 2;
  }
  try {
    torch::jit::Module model = torch::jit::load(argv[1]);
    model.eval();
    torch::NoGradGuard no_grad;
    torch::manual_seed(7);
    std::vector<torch::IValue> arguments;
    for (const auto& sizes : inputs)
      arguments.emplace_back(integers > 0 ? torch::randint(integers, sizes, torch::kLong) : torch::randn(sizes));

    torch::Tensor result;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t call = 0; call < calls; ++call) result = first_of(model.forward(arguments));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cout << "checksum: " << result.to(torch::kDouble).abs().mean().item<double>() << "\n"
              << "call: " << 1e3 * seconds / static_cast<double>(calls) << " ms\n";
  } catch (const c10::Error& problem) {
    std::cerr << "serve: " << problem.what_without_backtrace() << "\n";
    return 1;
  } catch (const std::exception& problem) {
    std::cerr << "serve: " << problem.what() << "\n";
    return 1;
  }
  return 0;
}
