#include "launcher/commands/last_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/bench/op_report.h"
#include "launcher/commands/commands.h"
#include "launcher/plan/show.h"
#include "launcher/run/user_folders.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::uintmax_t kMostBytes = 16u << 20;

/// "" = nothing is kept.
std::string folder() {
  std::map<std::string, std::string> variables;
  for (const char* name : {env::name(env::Id::kCache), "XDG_CACHE_HOME", "HOME"}) variables[name] = env::get_named(name).value_or("");
  return cache_dir(variables);
}

std::string file_in(const std::string& folder) { return folder + "/last-run.json"; }

bool saw_torch(const std::vector<bench::OpReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const bench::OpReport& one) {
    return !one.process.empty() || !one.facts.ops.empty() || !one.facts.modules.empty() || one.problem.starts_with("stock PyTorch ran");
  });
}

/// Of a file that may be damaged; 0 and "" where there is no such thing.
std::int64_t whole_number(const Json& in, const char* key) {
  const auto found = in.find(key);
  return found != in.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}
std::string text_in(const Json& in, const char* key) {
  const auto found = in.find(key);
  return found != in.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Whole under its name, or not at all: two runs may end at the same moment.
bool write_private(const std::string& path, const std::string& text) {
  const std::string fresh = path + '.' + std::to_string(::getpid());
  std::error_code failure;
  {
    std::ofstream out(fresh, std::ios::trunc);
    fs::permissions(fresh, fs::perms::owner_read | fs::perms::owner_write, failure);
    out << text;
    out.flush();
    if (!out) failure = std::make_error_code(std::errc::io_error);
  }
  if (!failure) fs::rename(fresh, path, failure);
  if (failure) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
  }
  return !failure;
}

}  // namespace

void keep_last_run(const Options& options, const LaunchPlan& plan, const RunOutcome& outcome) {
  const std::string place = folder();
  if (place.empty()) return;
  const std::vector<bench::OpReport> reports = bench::read_op_reports(outcome);
  if (!saw_torch(reports)) return;
  std::vector<std::string> command = {options.program};
  command.insert(command.end(), options.args.begin(), options.args.end());
  Json out;
  out["schema"] = kSchema;
  out["command"] = command;
  out["ended_at"] = static_cast<std::int64_t>(std::time(nullptr));
  out["exit_code"] = outcome.exit_code;
  out["plan"] = reasons_text(plan);
  out["text"] = bench::op_report_text(reports);
  out["report"] = Json::parse(bench::op_report_json(reports), nullptr, false);
  const Status made = make_private_folder(place);
  if (!made.ok() || !write_private(file_in(place), out.dump(1, ' ', false, Json::error_handler_t::replace) + '\n'))
    log::info("this run is not kept for explain-last: '" + place + "' cannot be written to");
}

Result<int> explain_last(const Options& options) {
  const std::string place = folder();
  if (place.empty()) return Error{kExitFailure, "no run is kept: IPEXRUN_CACHE is off, or HOME and XDG_CACHE_HOME are unset", ""};
  const std::string path = file_in(place);
  const Error none{kExitFailure, "no run is kept in '" + path + "'", "run a program that uses torch first: ipexrun python app.py"};
  std::error_code failure;
  if (!fs::is_regular_file(path, failure) || fs::file_size(path, failure) > kMostBytes || failure) return none;
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json run = Json::parse(text, nullptr, false);
  if (!run.is_object() || whole_number(run, "schema") != kSchema || !run.contains("command") || !run["command"].is_array())
    return Error{kExitFailure, "'" + path + "' is not a run that this version kept", "remove it"};
  if (options.json) return print(text);
  std::string command;
  for (const Json& word : run["command"])
    command += (command.empty() ? "" : " ") + (word.is_string() ? shell_quoted(word.get<std::string>()) : std::string("?"));
  const std::time_t ended = whole_number(run, "ended_at");
  std::tm local{};
  if (::localtime_r(&ended, &local) == nullptr) local.tm_mday = 1;  // a year that no calendar has
  return print(fmt::format("last run: {}\nended {:%Y-%m-%d %H:%M:%S} with exit code {}\n\nplan\n{}\n{}", command, local,
                           whole_number(run, "exit_code"), text_in(run, "plan"), text_in(run, "text")));
}

}  // namespace ipexrun::launcher
