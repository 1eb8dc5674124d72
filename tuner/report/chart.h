// Axes and marks that the charts share. Coordinates are SVG's: x to the right, y down.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "launcher/bench/report.h"

namespace ipexrun::tuner::chart {

/// A range of numbers along a line from `from` to `to`, with some room at both ends.
struct Axis {
  double low = 0;
  double high = 1;
  double from = 0;
  double to = 1;

  void fit(double least, double most, double room = 0.06) {
    const double width = most > least ? most - least : std::max(std::abs(most), 1.0) * 0.1;
    low = least - room * width;
    high = most + room * width;
    if (least >= 0 && low < 0) low = 0;
  }
  [[nodiscard]] double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// 1, 2 or 5 times a power of ten: about `count` of them fit into `width`.
inline double nice_step(double width, int count = 5) {
  const double raw = width / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

inline std::string label(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     launcher::bench::html_escape(text));
}

inline std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1, x2, y2);
}

/// Grid lines and numbers of a vertical axis that stands at `left`.
inline std::string y_axis(const Axis& y, double left, double right) {
  std::string out;
  const double step = nice_step(y.high - y.low);
  for (double tick = std::ceil(y.low / step) * step; tick <= y.high + step * 1e-9; tick += step) {
    out += line(left, y.at(tick), right, y.at(tick), "axis");
    out += label(left - 6, y.at(tick) + 4, "end", launcher::bench::show_number(std::abs(tick) < step * 1e-6 ? 0 : tick));
  }
  return out;
}

/// A dot with a text that appears when it is pointed at.
inline std::string dot(double x, double y, const char* style, const std::string& title, double radius = 3.5) {
  return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n", style, x, y, radius,
                     launcher::bench::html_escape(title));
}

inline std::string open(int width, int height, const std::string& what) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width, height, launcher::bench::html_escape(what));
}

}  // namespace ipexrun::tuner::chart
