// A part of a graph that Inductor compiled beforehand (AOTInductor), and the same part in steps of ours, which answer where that is not at
// hand, was not faster, or where a call has other sizes.
//
// Thread rule: as Program; load() and choose_parts() by one thread at a time, while others run the program.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// A shared object that AOTInductor made, open as long as somebody holds it.
class CompiledPart {
 public:
  /// Throws what torch throws.
  explicit CompiledPart(const std::string& path);
  ~CompiledPart();
  CompiledPart(const CompiledPart&) = delete;
  CompiledPart& operator=(const CompiledPart&) = delete;
  /// Tensors of the sizes and strides that it was compiled for. Results share memory with no input and with no other. Throws what torch
  /// throws.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Runner;
  std::unique_ptr<Runner> runner_;
};

/// What an input of a part has to be, exactly.
struct PartInput {
  bool tensor = false;
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t number = 0;  ///< of those that are none

  [[nodiscard]] bool fits(const c10::IValue& value) const;
};

struct Part {
  std::string text;  ///< what it computes, for the one who compiles it (part_text.h)
  std::vector<PartInput> inputs;
  std::vector<at::Tensor> constants;         ///< inputs of the compiled form behind the tensors among `inputs`
  std::unique_ptr<const Program> otherwise;  ///< takes `inputs`
  std::int64_t ns = 0;                       ///< that its operators took in the call in which it was found

  mutable std::shared_ptr<const CompiledPart> keeps;
  mutable std::atomic<const CompiledPart*> compiled{nullptr};
  mutable std::atomic<bool> answers{false};  ///< the compiled form is faster

  void load(std::shared_ptr<const CompiledPart> code) const;
};

/// node.part; `arguments` are its inputs, `outputs` its results.
std::unique_ptr<Step> make_part_step(const Node& node);

/// Runs the program once; each of its parts runs in both forms a few times, and the faster one answers from then on. Gives its results.
Values choose_parts(const Program& program, Values inputs);

}  // namespace ipexrun::preload::graph
