// A straight line of operators inside a TorchScript graph, stock's form beside ours, and which of them answers.
//
// scripted_pass.cpp puts two operators around it: `ask` gets what the region reads and says whether it answered, `tell` sees what stock's
// operators gave where it did not. So stock's form stays where it was, with its own errors and its own memory.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/custom_class.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/op_times.h"
#include "preload/plugin/graph/trial.h"

namespace ipexrun::preload::graph {

/// What became of one region, for reports. One lock guards all notes, which forks take as well.
struct RegionNote {
  std::string where;  ///< of the program's text, or of the module's name; "" unknown
  std::size_t nodes = 0;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> taken{0};
  // Under the lock:
  std::string choice = "stock";
  std::string fused;  ///< in the form that was made first
  double speed = 0;   ///< 0: not decided
  double error = 0;
  std::vector<OpTime> times;  ///< of the form that won
  std::string left_alone;     ///< why, or ""
};

/// What is known of the graph that a region lies in.
struct RegionOf {
  bool method;   ///< certainly no half of a training step
  bool chooses;  ///< among values (scripted_choices.h): no region of it may round them, since each is judged by its own results alone
};

/// Any number of threads may run it; one explores.
class Region final : public torch::CustomClassHolder {
 public:
  /// `body`: the region alone; its inputs and results are those of `ask`. `weights`: which inputs are attributes of a module.
  Region(std::shared_ptr<torch::jit::Graph> body, std::vector<bool> weights, RegionOf of, std::string where, std::size_t nodes);
  ~Region() override;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Takes the inputs off the stack; leaves a bool, the results, which are nothing where it is false, and what tell() gets. Throws nothing.
  void ask(torch::jit::Stack* stack) noexcept;
  /// Stock's form has run. Takes what ask() left for it off the stack; where stock's form throws, that goes with torch's own frame.
  void tell(torch::jit::Stack* stack) noexcept;

 private:
  struct Form;
  struct Choice;
  class Exploring;

  [[nodiscard]] bool may_round() const;
  [[nodiscard]] bool in_training(const c10::IValue* inputs) const;
  /// `exploring`: of a call of which both forms run.
  bool answer(const c10::IValue* inputs, Values* results, c10::intrusive_ptr<Exploring>* exploring);
  Form* form_of(const c10::IValue* inputs);
  /// Which candidate is tried; false where none is.
  bool choose(Exploring* run);
  /// Makes the form of a call of a new kind. Stock's form has run: what that warns of or raises was told by then.
  bool make_form(Exploring* run);
  std::unique_ptr<Form> made(const c10::IValue* inputs, torch::jit::Stack* truth);
  /// `results`: what it gave.
  Graph recorded(const Form& form, const c10::IValue* inputs, torch::jit::Stack* results) const;
  Choice* choice_of(const c10::IValue* inputs);
  [[nodiscard]] torch::jit::Stack run_body(const c10::IValue* inputs) const;
  [[nodiscard]] Values program_inputs(const Form& form, const c10::IValue* inputs) const;
  Values run(const Form& form, int candidate, const c10::IValue* inputs) const;
  void explored(Exploring& run);
  /// `may_wait`: its form is not about to answer, so that what float64 alone can tell may wait; run.postponed says whether it does.
  bool right(Exploring& run, ProgramTrial* trial, bool may_wait) const;
  /// From now on without kernels that are less exact than others, of which a graph may have too many; false where it took none of them.
  bool be_exact(const Exploring& run);
  void answered_too_small(Choice& choice);
  [[nodiscard]] bool large_enough(const Choice& choice, int candidate, const Values& results) const;
  void lose(Choice& choice, const Exploring& run, const std::string& why);
  static int choice_for(const Form& form);
  static void drop_missing(Choice& choice, const Form& form);
  void say(const std::string& choice, const ProgramTrial& trial);
  [[nodiscard]] std::string key_of(const Choice& choice) const;
  void remember(const Choice& choice, const std::string& word) const;
  void note_times(const Exploring& run) noexcept;

  static constexpr std::size_t kMostForms = 32;

  std::shared_ptr<torch::jit::Graph> body_;
  std::vector<bool> weights_;
  std::string name_;  ///< by which later processes know it: a digest of its text
  RegionOf of_;
  std::vector<at::Tensor> constants_;  ///< of the body: inputs of ours that no caller gives
  std::vector<at::Tensor> numbers_;    ///< likewise, without dimensions: numbers of ours, as long as they hold the same
  torch::jit::Code code_;
  std::size_t outputs_;
  std::array<std::atomic<Form*>, kMostForms> forms_{};  ///< owned; filled in order, never changed before the end
  std::atomic<std::size_t> form_count_{0};
  std::vector<std::unique_ptr<Choice>> choices_;         ///< who explores may add one
  std::atomic<bool> busy_{false};                        ///< somebody explores
  std::int64_t constant_room_ = std::int64_t{32} << 20;  ///< bytes left for what all forms compute from numbers alone; of who explores
  std::atomic<bool> hopeless_{false};
  std::atomic<int> mistakes_{0};
  std::shared_ptr<RegionNote> note_;
};

/// Whether this thread's calls may be answered by graphs at all now.
bool scripted_here();

/// Until it is told otherwise this thread expects of regions that it meets for the first time that this form of theirs is the fastest (1:
/// bf16 inside of float32, 0: none; -1: it expects nothing), since a graph of the same calls was: they are judged by results alone.
void scripted_expect(int form) noexcept;

/// How many calls of regions in this process had both forms run: who waits for regions to be decided watches it stand still.
std::uint64_t scripted_trials() noexcept;

/// No fork while somebody notes what became of a region: its child would wait for him.
void scripted_watch_forks();

/// What a report says of one region.
struct RegionFacts {
  std::int64_t number = 0;  ///< in this process
  std::string where;
  std::string choice;
  std::string fused;
  std::string left_alone;  ///< why, or ""
  std::size_t nodes = 0;
  std::uint64_t calls = 0;
  std::uint64_t taken = 0;
  double speed = 0;
  double error = 0;
  std::vector<OpTime> times;
};
/// Of those that were called.
std::vector<RegionFacts> scripted_facts();

/// The same as JSON objects, comma separated; "" = there are none.
std::string scripted_report_json();

}  // namespace ipexrun::preload::graph
