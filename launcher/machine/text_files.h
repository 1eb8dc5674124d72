// Small files of the kernel, as text. What cannot be read or understood is nullopt: no limit is made up from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ipexrun::launcher {

/// Without its newline; nullopt when the file cannot be read or is empty.
std::optional<std::string> first_line(const std::string& path);

/// The whole file; nullopt when it cannot be opened or read.
std::optional<std::string> whole_file(const std::string& path);

/// "key: value" or "key\tvalue" of the first line that starts with `key`, without blanks around the value. Of a text, and of a file (for
/// one value of it).
std::optional<std::string> value_in(std::string_view text, std::string_view key);
std::optional<std::string> value_of(const std::string& path, std::string_view key);

std::vector<std::string> words_of(const std::string& line, char separator);

/// The entire text is one finite number.
std::optional<double> number_in(const std::string& text);
std::optional<std::uint64_t> whole_number_in(const std::string& text);

/// Bytes of a line "MemTotal: 24684084 kB" of /proc/meminfo; 0 = not there.
std::uint64_t meminfo_bytes(std::string_view meminfo, std::string_view key);

/// The CPU or node list of the first line of a file ("0-3,8"); an empty line is an empty list.
std::optional<std::vector<int>> list_in(const std::string& path);

/// Entries of a folder, sorted; none when it is not there.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace ipexrun::launcher
