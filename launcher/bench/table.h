// Rows of the report as a grid of texts, shared by the terminal, markdown and html.
#pragma once

#include <string>
#include <vector>

#include "launcher/bench/report.h"

namespace ipexrun::launcher::bench {

struct Table {
  std::vector<std::string> header;
  std::vector<bool> numeric;                    ///< right-aligned column
  std::vector<std::vector<std::string>> lines;  ///< as many cells as header
};

/// The brief fields of several rows; columns that are empty in all rows are left out, and so are columns named in `hidden`.
Table brief_table(const std::vector<Row>& rows, const std::vector<std::string>& hidden = {});
/// One row a module class, with its share of the time.
Table module_table(const std::vector<Row>& rows);
/// Every field of one row: name, value with unit (or why there is none), meaning.
Table full_table(const Row& row);
Table facts_table(const std::vector<Fact>& facts);
Table comparison_table(const std::vector<Comparison>& comparisons);

/// Aligned columns with two spaces of indent.
std::string text_table(const Table& table);

/// "ipexrun against stock: 1.83x (1.79x to 1.88x), rank test p = 0.031 (n = 6, exact)"
std::string comparison_sentence(const Comparison& comparison);

}  // namespace ipexrun::launcher::bench
