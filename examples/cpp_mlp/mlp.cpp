// A small service loop in C++ on libtorch: an MLP ranks feature vectors. Plain libtorch; it knows nothing of ipexrun.
//
//   mlp [--batch N] [--width N] [--layers N] [--calls N]
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

namespace {

struct Ranker : torch::nn::Module {
  Ranker(int64_t width, int64_t layers) {
    for (int64_t i = 0; i < layers; ++i) {
      body->push_back(torch::nn::Linear(width, width));
      body->push_back(torch::nn::ReLU());
    }
    body->push_back(torch::nn::Linear(width, 1));
    register_module("body", body);
  }
  torch::Tensor forward(torch::Tensor x) { return body->forward(x); }
  torch::nn::Sequential body;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, int64_t> option{{"--batch", 64}, {"--width", 1024}, {"--layers", 8}, {"--calls", 400}};
  for (int i = 1; i < argc; i += 2) {
    const auto found = option.find(argv[i]);
    if (found == option.end() || i + 1 == argc) {
      std::cerr << "usage: mlp [--batch N] [--width N] [--layers N] [--calls N]\n";
      return 2;
    }
    found->second = std::atoll(argv[i + 1]);
  }
  torch::manual_seed(7);
  torch::NoGradGuard no_grad;
  Ranker model(option["--width"], option["--layers"]);
  model.eval();
  const torch::Tensor batch = torch::randn({option["--batch"], option["--width"]});

  double checksum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t call = 0; call < option["--calls"]; ++call) checksum = model.forward(batch).sum().item<double>();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double rows = static_cast<double>(option["--calls"] * option["--batch"]);
  std::cout << "checksum: " << checksum << "\n"
            << "throughput: " << rows / seconds << " rows/s\n";
  return 0;
}
