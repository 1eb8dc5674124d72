// Latency of the measured calls as an SVG: over time on the left, as a histogram on the right, one vertical axis for both.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "launcher/bench/report.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 300;
constexpr double kLeft = 62;        // room for the axis labels
constexpr double kPlotRight = 700;  // end of the time plot
constexpr double kBarsLeft = 730;
constexpr double kTop = 24;
constexpr double kBottom = 260;
constexpr std::size_t kMostDots = 2000;
constexpr int kBins = 40;

/// A round step that divides `range` into about five parts.
double nice_step(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

struct Axis {
  double low = 0;
  double high = 1;
  [[nodiscard]] double y(double value) const { return kBottom - (std::clamp(value, low, high) - low) / (high - low) * (kBottom - kTop); }
};

/// From just below the fastest call to the 99.5% point, so that one slow call does not flatten the rest; it is drawn at the edge.
Axis axis_for(const std::vector<double>& sorted) {
  const double low = sorted.front();
  const double high = quantile(sorted, 0.995);
  const double margin = std::max({(high - low) * 0.08, low * 0.02, 1e-6});
  return {std::max(0.0, low - margin), high + margin};
}

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, html_escape(words));
}

}  // namespace

std::string latency_plot(const Row& row) {
  const std::vector<double>& times = row.calls.duration_ms;
  if (times.size() < 2) return "";
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const Axis axis = axis_for(sorted);
  const double middle = quantile(sorted, 0.5);
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"latency of {2} measured calls over time, and their distribution\">\n", kWidth,
      kHeight, times.size());
  const double step = nice_step(axis.high - axis.low);
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high; tick += step) {
    out +=
        fmt::format("<line class=\"axis\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kLeft, axis.y(tick), kWidth, axis.y(tick));
    out += text(kLeft - 6, axis.y(tick) + 4, "end", show_number(tick));
  }
  out += text(kLeft - 6, kTop - 10, "end", "ms");
  const double length = std::max(row.calls.start_s.back(), 1e-9);
  const std::size_t every = (times.size() + kMostDots - 1) / kMostDots;
  for (std::size_t i = 0; i < times.size(); i += every) {
    const double x = kLeft + row.calls.start_s[i] / length * (kPlotRight - kLeft);
    out += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>\n", x, axis.y(times[i]));
  }
  std::array<int, kBins> bins{};
  for (const double value : times) {
    const double share = (std::clamp(value, axis.low, axis.high) - axis.low) / (axis.high - axis.low);
    ++bins[static_cast<std::size_t>(std::min(kBins - 1, static_cast<int>(share * kBins)))];
  }
  const double most = *std::max_element(bins.begin(), bins.end());
  const double bar = (kBottom - kTop) / kBins;
  for (int i = 0; i < kBins; ++i) {
    if (bins[static_cast<std::size_t>(i)] == 0) continue;
    const double width = bins[static_cast<std::size_t>(i)] / most * (kWidth - kBarsLeft - 4);
    out += fmt::format("<rect class=\"bar\" x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", kBarsLeft,
                       kBottom - (i + 1) * bar, width, bar - 1);
  }
  out += fmt::format("<line class=\"mid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>\n", kLeft, axis.y(middle), kWidth);
  out += text(kPlotRight, axis.y(middle) - 5, "end", "median " + show_number(middle) + " ms");
  out += text(kLeft, kBottom + 20, "start", "first call of " + row.calls.module);
  out += text(kPlotRight, kBottom + 20, "end", show_number(length) + " s");
  out += text(kBarsLeft, kBottom + 20, "start", fmt::format("calls by latency (n = {})", times.size()));
  if (every > 1) out += text(kLeft, kBottom + 36, "start", fmt::format("every {}th call is drawn", every));
  return out + "</svg>\n";
}

}  // namespace ipexrun::launcher::bench
