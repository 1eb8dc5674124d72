// What a call costs in a C++ program that does nothing but calls: an operator that ipexrun does not own, one that it owns and declines.
// Prints one JSON object: seconds since the program's own start until libtorch answered once, nanoseconds per call. Knows nothing of
// ipexrun.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

template <typename Call>
double least_ns(int rounds, Call call) {
  constexpr int kCalls = 2000;
  double least = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    least = std::min(least, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kCalls);
  }
  return least;
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 50;
  at::set_num_threads(1);
  const c10::InferenceMode no_gradients;
  const at::Tensor x = at::ones({16});
  const at::Tensor a = at::ones({2, 2}, at::kDouble);
  const double add = least_ns(rounds, [&] { (void)at::add(x, x); });
  const double view = least_ns(rounds, [&] { (void)x.view({4, 4}); });
  const double mm = least_ns(rounds, [&] { (void)at::mm(a, a); });
  std::printf("{\"add\": %.1f, \"view\": %.1f, \"mm float64 (declined)\": %.1f}\n", add, view, mm);
}
