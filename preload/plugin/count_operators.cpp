#include "preload/plugin/count_operators.h"

#include <ATen/record_function.h>

#include <memory>

namespace ipexrun::preload {
namespace {

thread_local std::int64_t counted = 0;
thread_local at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction&) {
  ++counted;
  return nullptr;
}

void end() {
  if (callback == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(callback);
  callback = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

void count_operators() {
  end();
  counted = 0;
  callback = at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
}

std::int64_t operators_counted() {
  if (callback == at::INVALID_CALLBACK_HANDLE) return -1;
  end();
  return counted;
}

}  // namespace ipexrun::preload
