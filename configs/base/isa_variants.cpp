#include "configs/base/isa_variants.h"

namespace ipexrun {
namespace {

/// A variant stands for what it uses itself; "amx" alone would be a level, with what that implies.
IsaSet isa_of_variant(std::string_view word) {
  if (word == "amx") return kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16;
  if (word == "amx_int8") return kLevelAvx512 | kIsaAmxInt8;
  if (word == "amx_avx512_fp16") return kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16 | kIsaAvx512Fp16;
  if (word == "avx512_bf16") return kLevelAvx512 | kIsaAvx512Bf16;
  return level_from_name(word).value_or(kLevelDefault);
}

}  // namespace

IsaSet isa_of_variants(std::string_view words) {
  IsaSet isa = kLevelDefault;
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    isa |= isa_of_variant(words.substr(0, end));
    words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
  }
  return isa;
}

}  // namespace ipexrun
