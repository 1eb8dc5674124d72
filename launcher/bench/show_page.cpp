// The report for people: markdown, and one html file without any external part.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/bench/page.h"
#include "launcher/bench/report.h"
#include "launcher/bench/table.h"
#include "launcher/bench/training.h"

namespace ipexrun::launcher::bench {
namespace {

const Row* headline_row(const Report& report) {
  const auto found =
      std::find_if(report.rows.begin(), report.rows.end(), [](const Row& r) { return r.variant == "ipexrun" && r.instance < 0; });
  return found == report.rows.end() ? nullptr : &*found;
}

/// One section: a heading and a table or a list.
struct Section {
  std::string title;
  Table table;
  std::vector<std::string> list;
};

std::vector<Section> sections(const Report& report) {
  std::vector<Section> out;
  if (!report.comparisons.empty()) out.push_back({"Speed-up in " + report.headline, comparison_table(report.comparisons), {}});
  if (report.rows.size() > 1) out.push_back({"Runs", brief_table(report.rows), {}});
  if (!report.modules.empty()) out.push_back({"Module classes", module_table(report.modules), {}});
  if (!report.training.empty()) out.push_back({"Training steps", training_table(report.training), {}});
  if (!report.warnings.empty()) out.push_back({"Warnings", {}, report.warnings});
  if (!report.notes.empty()) out.push_back({"How it was measured", {}, report.notes});
  if (const Row* row = headline_row(report)) out.push_back({"All fields of the ipexrun run", full_table(*row), {}});
  out.push_back({"Environment", facts_table(report.environment), {}});
  return out;
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

/// The two or three numbers that a reader wants first.
std::string key_figures(const Report& report) {
  std::string out;
  const auto add = [&](const std::string& number, const std::string& what) {
    out += fmt::format("<div class=\"big\">{} <small>{}</small></div>\n", html_escape(number), html_escape(what));
  };
  for (const Comparison& one : report.comparisons) {
    if (one.variant == "ipexrun") add(show_ratio(one.speedup), "as fast as " + one.baseline);
  }
  if (const Row* row = headline_row(report)) {
    if (row->samples_per_second) add(show_number(*row->samples_per_second), "samples/s");
    if (!row->calls.duration_ms.empty()) add(show_number(median(row->calls.duration_ms)) + " ms", "median call");
    if (row->source == Source::kMetricLine && row->metric) add(show_number(row->metric->value), row->metric->unit);
    if (row->source == Source::kWholeProgram) add(show_number(row->wall_seconds) + " s", "wall time");
  }
  return out;
}

}  // namespace

std::string markdown_table(const Table& table) {
  std::string out = "|";
  for (const std::string& cell : table.header) out += ' ' + markdown_cell(cell) + " |";
  out += "\n|";
  for (const bool numeric : table.numeric) out += numeric ? " ---: |" : " --- |";
  out += '\n';
  for (const auto& line : table.lines) {
    out += '|';
    for (const std::string& cell : line) out += ' ' + markdown_cell(cell) + " |";
    out += '\n';
  }
  return out;
}

std::string html_table(const Table& table) {
  const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
    std::string out = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      out += fmt::format("<{0}{1}>{2}</{0}>", tag, table.numeric[i] ? " class=\"n\"" : "", html_escape(cells[i]));
    }
    return out + "</tr>\n";
  };
  std::string out = "<div class=\"scroll\"><table>\n<thead>" + row(table.header, "th") + "</thead>\n<tbody>\n";
  for (const auto& line : table.lines) out += row(line, "td");
  return out + "</tbody></table></div>\n";
}

const char* page_style() {
  return ":root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d5dbe3;--band:#f4f6f9;--mark:#1766c2;--page:#fff}"
         "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa6b5;--line:#38424f;--band:#1d242d;--mark:#6cb0ff;--page:#13181f}"
         "}"
         "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:72rem;margin:2rem auto;padding:0 1rem}"
         "h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}code{background:var(--band);padding:.1rem "
         ".3rem;overflow-wrap:anywhere}"
         ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
         "th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
         "th{color:var(--soft);font-weight:600;white-space:nowrap}.n{text-align:right}.big{font-size:1.7rem;font-weight:600}.big "
         "small{font-size:.9rem;"
         "color:var(--soft);font-weight:400}.key{display:flex;flex-wrap:wrap;gap:.5rem 2.5rem;margin:1rem 0}li{margin:.2rem 0}"
         "svg{width:100%;height:auto;max-width:60rem}svg text{fill:var(--soft);font:12px system-ui,sans-serif}"
         "svg .axis{stroke:var(--line)}svg .dot{fill:var(--mark);fill-opacity:.55}svg .bar{fill:var(--mark);fill-opacity:.7}svg "
         ".mid{stroke:var(--ink);"
         "stroke-dasharray:4 3}";
}

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string report_markdown(const Report& report) {
  std::string out = "# ipexrun bench\n\n    " + markdown_cell(report.command) + "\n";
  for (const Section& section : sections(report)) {
    out += "\n## " + section.title + "\n\n";
    for (const std::string& line : section.list) out += "- " + line + '\n';
    if (!section.table.header.empty()) out += markdown_table(section.table);
  }
  return out;
}

std::string report_html(const Report& report) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>ipexrun bench: " +
      html_escape(report.headline) + "</title>\n<style>" + page_style() + "</style></head><body>\n<h1>ipexrun bench</h1>\n<p><code>" +
      html_escape(report.command) + "</code></p>\n<div class=\"key\">" + key_figures(report) + "</div>\n";
  if (const Row* row = headline_row(report)) out += latency_plot(*row);
  for (const Section& section : sections(report)) {
    out += "<h2>" + html_escape(section.title) + "</h2>\n";
    if (!section.list.empty()) {
      out += "<ul>";
      for (const std::string& line : section.list) out += "<li>" + html_escape(line) + "</li>\n";
      out += "</ul>\n";
    }
    if (!section.table.header.empty()) out += html_table(section.table);
  }
  return out + "</body></html>\n";
}

}  // namespace ipexrun::launcher::bench
