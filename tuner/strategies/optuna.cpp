#include "tuner/strategies/optuna.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "configs/contract/env.h"
#include "launcher/run/context.h"
#include "launcher/run/posix.h"
#include "launcher/run/program.h"

namespace ipexrun::tuner {
namespace {

using Json = nlohmann::json;

constexpr int kAnswerMs = 600000;  // a Gaussian process over many trials takes its time
constexpr int kLeaveMs = 5000;
constexpr int kMostRefused = 200;  // asked points in a row that are of no use
constexpr int kThenByChance = 20;  // a sampler that is sure of itself asks for the same again and again

/// The Python program, with a pipe to and from it.
class Helper {
 public:
  Helper() = default;
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    to_.reset();
    if (pid_ <= 0) return;
    const launcher::Fd end(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    pollfd entry{end.get(), POLLIN, 0};
    if (!end.open() || ::poll(&entry, 1, kLeaveMs) != 1) ::kill(pid_, SIGKILL);  // it holds nothing that is not in the storage
    ::waitpid(pid_, nullptr, 0);
  }

  Status start(const std::string& python, const std::string& script) {
    int down[2];
    int up[2];
    if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0)
      return Error{kExitFailure, "cannot make a pipe: " + launcher::errno_text(errno), ""};
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);  // ctrl-C is for hypertune
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(down[0], STDIN_FILENO);
      ::dup2(up[1], STDOUT_FILENO);
      ::execl(python.c_str(), python.c_str(), "-u", script.c_str(), nullptr);
      ::_exit(127);
    }
    to_ = launcher::Fd(down[1]);
    from_ = launcher::Fd(up[0]);
    ::close(down[0]);
    ::close(up[1]);
    return pid_ > 0 ? ok_status() : Status(Error{kExitFailure, "cannot start " + python, ""});
  }

  Result<Json> call(const Json& message) {
    const std::string text = message.dump() + "\n";
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(to_.get(), text.data() + done, text.size() - done);
      if (n > 0) done += static_cast<std::size_t>(n);
      if (n < 0 && errno != EINTR) return Error{kExitFailure, "the Python program that runs Optuna ended", "its message stands above"};
    }
    std::size_t end;
    while ((end = rest_.find('\n')) == std::string::npos) {
      pollfd entry{from_.get(), POLLIN, 0};
      if (::poll(&entry, 1, kAnswerMs) == 0) return Error{kExitFailure, "Optuna gave no answer in ten minutes", ""};
      char buffer[4096];
      const ssize_t n = ::read(from_.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Error{kExitFailure, "the Python program that runs Optuna ended", "its message stands above"};
      rest_.append(buffer, static_cast<std::size_t>(n));
    }
    Json answer = Json::parse(rest_.substr(0, end), nullptr, false);
    rest_.erase(0, end + 1);
    if (!answer.is_object()) return Error{kExitFailure, "Optuna's program answered what is no JSON", ""};
    if (answer.contains("missing"))
      return Error{
          kExitUsage, answer["error"].get<std::string>(),
          "pip install optuna (gp also needs scipy and torch, cmaes the package cmaes, PostgreSQL psycopg2-binary); --python names the "
          "interpreter that has it; grid, random, climb and halving need none"};
    if (answer.contains("error")) return Error{kExitFailure, "Optuna: " + answer["error"].get<std::string>(), ""};
    return answer;
  }

 private:
  pid_t pid_ = -1;
  launcher::Fd to_;
  launcher::Fd from_;
  std::string rest_;
};

Json json_of(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

Value value_of(const Json& json) {
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return std::monostate{};
}

class Optuna final : public Strategy {
 public:
  Optuna(const Settings& settings, std::string storage, int worker_index)
      : settings_(settings), storage_(std::move(storage)), worker_index_(worker_index) {}

  /// Also asks whether Optuna is there: a study must not end at its first question.
  Status start(const std::string& python, const std::string& script) {
    if (Status started = helper_.start(python, script); !started.ok()) return started;
    const Result<Json> there = helper_.call({{"op", "check"}, {"sampler", settings_.strategy}});
    return there.ok() ? ok_status() : Status(there.error());
  }

  Result<Answer> ask(const History& history, const Judge& judge) override {
    if (history.objectives.empty()) {  // the default failed: there are no directions yet to open a study with
      auto point = new_random_point(settings_.space, settings_.seed, history, judge);
      return point ? Answer::point({std::move(*point)}) : Answer::done("no further point was found that was not tried");
    }
    if (Status opened = open(history); !opened.ok()) return opened.error();
    if (Status left = drop_unknown(history); !left.ok()) return left.error();
    for (int refused = 0; refused < kMostRefused; ++refused) {
      Result<Json> asked = helper_.call({{"op", "ask"}, {"by_chance", refused >= kThenByChance}});
      if (!asked.ok()) return asked.error();
      Proposal out;
      out.outside = asked->at("number").get<int>();
      for (const Parameter& one : settings_.space.parameters) {
        if (!is_active(one, out.point)) continue;
        Result<Json> value = helper_.call(suggestion(one, out.outside));
        if (!value.ok()) return value.error();
        out.point[one.name] = value_of(value->at("value"));
      }
      const Trial* known = same_point(history, out.point);
      const Judgement judged = known != nullptr ? Judgement{Use::kSame, "", known->number} : judge(out.point);
      if (judged.use == Use::kYes) {
        Result<bool> mine = take(out.outside);
        if (!mine.ok()) return mine.error();
        if (*mine) return Answer::point(std::move(out));
        continue;
      }
      // What is known needs no run; what cannot be run is a failure to it.
      const Trial* same = judged.use == Use::kSame ? history.find(judged.same_as) : nullptr;
      Status told = tell_values(history, out.outside, same != nullptr && same->ended ? same : nullptr);
      if (!told.ok()) return told.error();
    }
    return Answer::done("Optuna proposed nothing new any more");
  }

  Status tell(const History& history, const Trial& trial) override {
    if (trial.outside < 0) return ok_status();
    if (Status opened = open(history); !opened.ok()) return opened;
    return tell_values(history, trial.outside, &trial);
  }

 private:
  static const Trial* same_point(const History& history, const Point& point) {
    const std::string key = key_of(point);
    for (const Trial& one : history.trials)
      if (key_of(one.point) == key) return &one;
    return nullptr;
  }

  /// Directions are known only once the first run has settled the objectives.
  Status open(const History& history) {
    if (open_) return ok_status();
    Json directions = Json::array();
    Json names = Json::array();
    for (const Objective& one : history.objectives) {
      directions.push_back(one.higher_is_better ? "maximize" : "minimize");
      names.push_back(one.name);
    }
    const std::string name = settings_.study_name.empty() ? "hypertune" : settings_.study_name;
    Result<Json> opened = helper_.call(
        {{"op", "open"},
         {"storage", storage_},
         {"study", name},
         {"sampler", settings_.strategy},
         {"seed", settings_.seed + static_cast<std::uint64_t>(worker_index_) * 7919},
         {"directions", directions},
         {"names", names},
         {"owner", history.head->id},
         {"kind", {{"program", history.head->program}, {"space", history.head->space}, {"objective", history.head->objective}}}});
    if (!opened.ok()) return opened.error();
    if (opened->contains("refused"))
      return Error{kExitUsage, opened->at("refused").get<std::string>(), "tpe, gp, nsga2 and nsga3 take several"};
    if (opened->contains("other"))
      return Error{kExitUsage,
                   "the study '" + name + "' in " + storage_ + " has another " + opened->at("other").get<std::string>() + " than this one",
                   "--study-name names another; workers of one study have the same command line and space, and machines alike"};
    open_ = true;
    for (const Trial& one : history.trials) {  // what a killed worker did not come to tell
      if (one.outside < 0 || !one.ended) continue;
      if (Status told = tell_values(history, one.outside, &one); !told.ok()) return told;
    }
    return ok_status();
  }

  /// Trials that a worker of this journal asked for and was killed before it wrote them down. The journal is locked.
  Status drop_unknown(const History& history) {
    if (dropped_) return ok_status();
    dropped_ = true;
    Json known = Json::array();
    for (const Trial& one : history.trials)
      if (one.outside >= 0) known.push_back(one.outside);
    const Result<Json> done = helper_.call({{"op", "drop_unknown"}, {"known", known}});
    return done.ok() ? ok_status() : Status(done.error());
  }

  /// In a storage that several journals share: false where another one has, or had, the same point. What came of it is told.
  Result<bool> take(int number) {
    if (settings_.storage.empty()) return true;
    Result<Json> taken = helper_.call({{"op", "take"}, {"number", number}});
    if (!taken.ok()) return taken.error();
    return taken->at("taken").get<bool>();
  }

  static Json suggestion(const Parameter& one, int number) {
    Json out{{"op", "suggest"}, {"number", number}, {"name", one.name}, {"log", one.log}};
    if (one.kind == Kind::kCategory) {
      out["values"] = Json::array();
      for (const Value& value : one.values) out["values"].push_back(json_of(value));
    } else if (one.kind == Kind::kInt) {
      out["int"] = {static_cast<std::int64_t>(one.low), static_cast<std::int64_t>(one.high)};
      out["step"] = static_cast<std::int64_t>(one.step > 0 ? one.step : 1);
    } else {
      out["float"] = {one.low, one.high};
      out["step"] = one.step > 0 ? Json(one.step) : Json(nullptr);
    }
    return out;
  }

  Status tell_values(const History& history, int number, const Trial* trial) {
    Json values = trial != nullptr && trial->state == State::kComplete ? Json::array() : Json(nullptr);
    Json violated = Json::array();
    if (values.is_array()) {
      for (const Objective& one : history.objectives) {
        const auto value = trial->value(one.name);
        if (!value) {
          values = nullptr;
          break;
        }
        values.push_back(*value);
      }
      for (const Constraint& one : settings_.constraints) {
        const auto value = trial->value(one.metric);
        const double beyond = value ? (one.op.front() == '<' ? *value - one.bound : one.bound - *value) : 1;
        violated.push_back(value && one.holds(*value) ? std::min(beyond, 0.0) : std::max(beyond, 1e-9));
      }
    }
    Json attrs = Json::object();
    if (trial != nullptr) attrs["hypertune_trial"] = trial->number;
    Result<Json> told = helper_.call({{"op", "tell"}, {"number", number}, {"values", values}, {"constraints", violated}, {"attrs", attrs}});
    return told.ok() ? ok_status() : Status(told.error());
  }

  Settings settings_;
  std::string storage_;
  int worker_index_;
  Helper helper_;
  bool open_ = false;
  bool dropped_ = false;
};

}  // namespace

Result<std::unique_ptr<Strategy>> optuna_strategy(const Settings& settings, const std::string& folder, int worker_index) {
  const std::string path = env::get_named("PATH").value_or("");
  const std::string python = settings.python.empty()                                 ? launcher::find_python(path)
                             : settings.python.find('/') != std::string::npos        ? settings.python
                             : launcher::resolve_program(settings.python, path).ok() ? *launcher::resolve_program(settings.python, path)
                                                                                     : "";
  if (python.empty() || ::access(python.c_str(), X_OK) != 0)
    return Error{kExitUsage,
                 "the strategy " + settings.strategy + " needs a Python with Optuna, and " +
                     (settings.python.empty() ? "PATH has none" : "'" + settings.python + "' is not there"),
                 "--python PYTHON"};
  const std::string script = launcher::find_lib_dir() + "/tuner/optuna_helper.py";
  if (::access(script.c_str(), R_OK) != 0) return Error{kExitFailure, "'" + script + "' is missing", "the installation is not complete"};
  auto out =
      std::make_unique<Optuna>(settings, settings.storage.empty() ? "sqlite:///" + folder + "/optuna.db" : settings.storage, worker_index);
  if (Status started = out->start(python, script); !started.ok()) return started.error();
  return Result<std::unique_ptr<Strategy>>(std::move(out));
}

}  // namespace ipexrun::tuner
