// A decision of selection: at this kind of call, this candidate is used. One schema for the config's `decisions:` list, the
// summary, the report and the cache on disk. Later versions only add fields; a reader ignores fields it does not know.
//
// Only the timing order is ever taken over from outside the process: accuracy is checked again in every process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ipexrun {

inline constexpr int kDecisionSchema = 1;

/// What makes two calls "the same" for timing. Text form, stable: "addmm|f32,f32,f32|ct|m=128,n=768,k=768|t=2|amx|2.13".
struct SiteKey {
  std::string op;       ///< schema name without the namespace, overload after a dot ("addmm", "bmm.out")
  std::string dtypes;   ///< f32, bf16, f16, f64 of the inputs, comma separated
  std::string layouts;  ///< one letter an input: c contiguous, t transposed, e expanded, s otherwise strided
  std::string sizes;    ///< "m=128,n=768,k=768"; m is rounded up to a power of two, weight sizes are exact
  int threads = 0;      ///< size of torch's intra-op pool
  std::string isa;      ///< level_name() of the process
  std::string torch;    ///< "2.13"

  [[nodiscard]] std::string text() const;
  friend bool operator==(const SiteKey&, const SiteKey&) = default;
};

/// Parses SiteKey::text(); false when a field is missing or threads is no number.
bool parse_site_key(std::string_view text, SiteKey* out);

/// The outcome for one site.
struct Decision {
  SiteKey site;
  std::string choice;           ///< "stock" or a candidate's name
  std::int64_t stock_ns = 0;    ///< median time of stock while exploring
  std::int64_t choice_ns = 0;   ///< median time of the choice, packing not counted
  int samples = 0;              ///< paired measurements behind it
  std::string reason;           ///< one of: faster, slower, inaccurate, unsupported, pinned, forced, rolled back, remembered
  std::string dtype = "auto";   ///< the --dtype that it was made under
  std::int64_t decided_at = 0;  ///< seconds since 1970, 0 = unknown
};

/// One line of the cache on disk and of the file that carries a config's decisions: site, choice, stock_ns, choice_ns, samples, reason,
/// dtype and decided_at, separated by tabs, without a line feed. No field may hold a tab.
std::string decision_line(const Decision& decision);

/// Its inverse; false when a field is missing or is not what it should be (a choice: up to 64 printable characters of ASCII). Further
/// fields are ignored.
bool parse_decision_line(std::string_view line, Decision* out);

}  // namespace ipexrun
