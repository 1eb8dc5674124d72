// Operators without a kernel of ours run on the CPU: arguments are copied there, results come back.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "xpu/opencl/device.h"

namespace ipexrun::preload::xpu {

/// For every operator of the dispatch keys XPU, SparseXPU and SparseCsrXPU that has no kernel of its own.
/// - Outputs, in-place and out= arguments end on the device of the first xpu argument (else of the device that was asked for).
/// - Random numbers continue the sequence of the xpu generator: of the one that was passed, else of the device's default one.
/// - Types that the CPU does not know for an operator (half) are computed in float and come back as they were.
/// - A layout or an error is the CPU's.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Says once an operator that it runs on the CPU, or what is done instead, and why.
void no_kernel(const std::string& name, const char* why, const char* instead = "runs on the CPU");
/// False where `kernel` says that it does not know the call, and where the device has no such kernel (one line says so, once an operator).
template <typename Function>
bool attempt(const c10::OperatorHandle& op, Function&& kernel) {
  try {
    return kernel();
  } catch (const ::ipexrun::xpu::DeviceError& problem) {
    no_kernel(op.schema().name(), problem.what());
    return false;
  }
}

/// While kernels are timed: waits for them, so that a fallback's time does not hold theirs.
void finish_kernels();
/// Counts a call that another place of ours sent through the CPU.
void count_fallback(const std::string& name, double seconds, std::size_t bytes);

/// JSON: [{"name", "calls", "seconds", "bytes"}, ...], the costliest first.
std::string fallbacks_json();
void forget_fallbacks();

}  // namespace ipexrun::preload::xpu
