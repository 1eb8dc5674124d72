// What the user sees while a study runs: one line in place on a terminal, else a line a trial.
#pragma once

#include <string>

#include "tuner/cli/settings.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

/// "trial 12 of 40, best 2.31x the default (trial 9), about 3 min 05 s left"
std::string progress_text(const History& history, const Settings& settings, double elapsed_s);

/// "trial 9: 123.4 1/s (ninstances 2, thp on)", or how it failed.
std::string trial_line(const History& history, const Trial& trial);

class Progress {
 public:
  explicit Progress(const Settings& settings);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const History& history, const std::string& doing, double elapsed_s);
  void hide();

 private:
  const Settings& settings_;
  bool terminal_ = false;
  bool drawn_ = false;
  std::size_t told_ = 0;
};

}  // namespace ipexrun::tuner
