#include "launcher/distributed/show_job.h"

#include <nlohmann/json.hpp>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {

std::string job_table(const Job& job, const LaunchPlan& slices) {
  std::string out = std::string("engine\n  ") + engine_name(job.engine) + ", " + job.hosts + " host" + (job.hosts == "1" ? "" : "s") +
                    ", " + std::to_string(job.ranks_per_host) + " rank" + (job.ranks_per_host == 1 ? "" : "s") +
                    (job.hosts == "1" ? "\n" : " each\n");
  for (const auto& [name, value] : job.process.env) out += "  " + name + "=" + shell_quoted(value) + "\n";
  out += " ";
  for (const std::string& word : job.process.argv) out += " " + shell_quoted(word);
  return out + "\n\nlocal ranks of this host (instance i is local rank i)\n" + plan_table(slices);
}

std::string job_json(const Job& job, const LaunchPlan& slices) {
  LaunchPlan both = slices;
  both.reasons.insert(both.reasons.begin(), job.reasons.begin(), job.reasons.end());
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(plan_json(both));
  out["engine"] = {{"name", engine_name(job.engine)},
                   {"hosts", job.hosts},
                   {"ranks_per_host", job.ranks_per_host},
                   {"argv", job.process.argv},
                   {"env", job.process.env}};
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ipexrun::launcher
