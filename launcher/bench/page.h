// What all pages of ours have in common.
#pragma once

#include <string>

#include "launcher/bench/table.h"

namespace ipexrun::launcher::bench {

/// The style sheet: light and dark, tables, plots.
const char* page_style();

std::string html_table(const Table& table);
std::string markdown_table(const Table& table);

}  // namespace ipexrun::launcher::bench
