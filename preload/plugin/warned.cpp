#include "preload/plugin/warned.h"

#include <c10/util/Exception.h>

#include <utility>

namespace ipexrun::preload {
namespace {

class Keeping final : public c10::WarningHandler {
 public:
  void begin() noexcept {
    if (depth_++ > 0) return;
    before_ = c10::WarningUtils::get_warning_handler();
    c10::WarningUtils::set_warning_handler(this);
  }

  [[nodiscard]] std::string end() noexcept {
    if (depth_ > 0 && --depth_ == 0) c10::WarningUtils::set_warning_handler(before_);
    return std::exchange(messages_, {});
  }

  void process(const c10::Warning& warning) override {
    const c10::SourceLocation& from = warning.source_location();
    messages_ += warning.msg();
    if (!warning.verbatim() && from.file != nullptr) {
      messages_ += " (Triggered internally at " + std::string(from.file) + ":" + std::to_string(from.line) + ".)";
    }
    messages_ += '\0';
  }

 private:
  int depth_ = 0;
  c10::WarningHandler* before_ = nullptr;
  std::string messages_;
};

thread_local Keeping keeping_here;

}  // namespace

void warned_begin() noexcept { keeping_here.begin(); }

std::string warned_end() noexcept { return keeping_here.end(); }

}  // namespace ipexrun::preload
