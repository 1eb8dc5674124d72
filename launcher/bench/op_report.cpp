#include "launcher/bench/op_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "configs/contract/event_ring.h"
#include "launcher/bench/output.h"
#include "launcher/bench/table.h"
#include "launcher/bench/values.h"

namespace ipexrun::launcher::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::size_t kMostSites = 10;  // of one instance, in the terminal
constexpr const char* kOption = "--report-output";

const char* problem_of(std::uint32_t shim_state) {
  switch (shim_state) {
    case IPEXRUN_SHIM_ABSENT:
      return "the shim was not loaded into the program";
    case IPEXRUN_SHIM_LOADED:
      return "the program never loaded torch";
    case IPEXRUN_SHIM_TORCH_SEEN:
      return "torch was loaded but the plugin never started";
    default:
      return "";
  }
}

OpReport read_one(const InstanceOutcome& instance) {
  OpReport out;
  out.instance = instance.index;
  const auto snapshot = instance.events_path.empty() ? Result<EventSnapshot>(Error{kExitFailure, "there was no event file", ""})
                                                     : read_events(instance.events_path);
  if (!snapshot) {
    out.problem = snapshot.error().what;
    return out;
  }
  for (const IpexrunEvent& event : snapshot->events) {
    if (event.kind == IPEXRUN_EVENT_PROCESS) out.process = event.text;
  }
  out.facts = op_facts_of(snapshot->events);
  const IpexrunEventHeader& header = snapshot->header;
  out.problem = header.shim_state == IPEXRUN_SHIM_REFUSED
                    ? "stock PyTorch ran: " + std::string(header.shim_reason, ::strnlen(header.shim_reason, sizeof header.shim_reason))
                    : problem_of(header.shim_state);
  if (out.problem.empty() && out.facts.ops.empty() && out.facts.regions.empty() && out.facts.modules.empty())
    out.problem = "the main process called no op that ipexrun has kernels for";
  return out;
}

/// Two digits of small shares: drift of 0.4% is not that of 0.04%.
std::string percent_text(double value) { return value > 0 && value < 9.5 ? fmt::format("{:.2g}%", value) : fmt::format("{:.0f}%", value); }

std::string cell(const char* unit, const Value& value) {
  const bool percent = std::string(unit) == "%" && !std::holds_alternative<Missing>(value);
  return percent ? percent_text(std::get<double>(value)) : show_value(value);
}

/// Columns that are empty in all rows are left out.
template <typename T>
std::string table_of(const std::vector<T>& rows, std::size_t count, const std::vector<FieldOf<T>>& fields) {
  Table out;
  count = std::min(count, rows.size());
  out.lines.resize(count);
  for (const FieldOf<T>& field : fields) {
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(field.get(rows[i]));
    if (std::all_of(values.begin(), values.end(), [](const Value& v) { return std::holds_alternative<Missing>(v); })) continue;
    out.header.push_back(field.name);
    out.numeric.push_back(
        std::none_of(values.begin(), values.end(), [](const Value& v) { return std::holds_alternative<std::string>(v); }));
    for (std::size_t i = 0; i < count; ++i) out.lines[i].push_back(cell(field.unit, values[i]));
  }
  return text_table(out);
}

template <typename T>
Json row_json(const T& row, const std::vector<FieldOf<T>>& fields) {
  Json out = Json::object();
  for (const FieldOf<T>& field : fields) out[field.name] = value_json(field.get(row));
  if constexpr (requires { row.reasons; }) {
    out["reasons"] = Json::object();  // numbers for programs, one text for people
    for (const auto& [word, count] : row.reasons) out["reasons"][word] = count;
  }
  return out;
}

template <typename T>
Json rows_json(const std::vector<T>& rows, const std::vector<FieldOf<T>>& fields) {
  Json out = Json::array();
  for (const T& row : rows) out.push_back(row_json(row, fields));
  return out;
}

template <typename T>
Json fields_json(const std::vector<FieldOf<T>>& fields) {
  Json out = Json::array();
  for (const FieldOf<T>& field : fields) out.push_back({{"name", field.name}, {"unit", field.unit}, {"doc", field.doc}});
  return out;
}

}  // namespace

std::vector<OpReport> read_op_reports(const RunOutcome& outcome) {
  std::vector<OpReport> out;
  for (const InstanceOutcome& instance : outcome.instances) out.push_back(read_one(instance));
  return out;
}

std::string op_report_text(const std::vector<OpReport>& reports) {
  std::string out;
  for (const OpReport& report : reports) {
    out += fmt::format("report: instance {}", report.instance);
    if (!report.problem.empty()) {
      out += ": " + report.problem + '\n';
      continue;
    }
    if (!report.process.empty()) out += ", " + report.process;
    if (out.ends_with(", 1 threads")) out.pop_back();  // the record counts, for whoever reads it; this is for people
    if (report.facts.ops.empty()) {
      out += '\n';
    } else {
      out += ": " + calls_by_kind(report.facts.ops) + " taken; packs " + bytes_text(report.facts.pack_bytes) + '\n';
      out += table_of(report.facts.ops, report.facts.ops.size(), op_fields());
    }
    if (report.facts.drift) {
      out += fmt::format("drift of whole passes (at most {:.0f}%)\n", 100 * IPEXRUN_DRIFT_BOUND);
      out += table_of(std::vector{*report.facts.drift}, 1, drift_fields());
    }
    if (!report.facts.modules.empty()) {
      out += "modules\n";
      out += table_of(report.facts.modules, kMostSites, module_fields());
    }
    if (!report.facts.regions.empty()) {
      out += "captured graphs\n";
      out += table_of(report.facts.regions, kMostSites, region_fields());
    }
    if (!report.facts.times.empty()) {
      out += "time by operator in captured graphs: of one call of each, times the calls taken\n";
      out += table_of(report.facts.times, report.facts.times.size(), op_time_fields());
    }
    const std::size_t sites = report.facts.sites.size();
    if (sites == 0) continue;
    out += sites > kMostSites ? fmt::format("the {} of {} sites that save most ({} FILE.json has all)\n", kMostSites, sites, kOption)
                              : std::string("sites\n");
    out += table_of(report.facts.sites, kMostSites, site_fields());
  }
  return out;
}

std::string op_report_json(const std::vector<OpReport>& reports) {
  Json out;
  out["schema"] = kSchema;
  out["op_fields"] = fields_json(op_fields());
  out["site_fields"] = fields_json(site_fields());
  out["drift_fields"] = fields_json(drift_fields());
  out["module_fields"] = fields_json(module_fields());
  out["region_fields"] = fields_json(region_fields());
  out["time_fields"] = fields_json(op_time_fields());
  out["instances"] = Json::array();
  for (const OpReport& report : reports) {
    Json one{{"instance", report.instance}, {"process", report.process}};
    one["problem"] = report.problem.empty() ? Json(nullptr) : Json(report.problem);
    one["pack_bytes"] = report.facts.pack_bytes;
    one["drift"] = report.facts.drift ? row_json(*report.facts.drift, drift_fields()) : Json(nullptr);
    one["ops"] = rows_json(report.facts.ops, op_fields());
    one["modules"] = rows_json(report.facts.modules, module_fields());
    one["regions"] = rows_json(report.facts.regions, region_fields());
    one["times"] = rows_json(report.facts.times, op_time_fields());
    one["sites"] = rows_json(report.facts.sites, site_fields());
    out["instances"].push_back(std::move(one));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

Status check_op_report_output(const std::string& path) { return path.empty() ? ok_status() : check_writable(kOption, path); }

Status show_op_reports(const Options& options, const std::vector<OpReport>& reports) {
  print_prefixed(op_report_text(reports));
  return options.report_output.empty() ? ok_status() : write_whole(kOption, options.report_output, op_report_json(reports));
}

}  // namespace ipexrun::launcher::bench
