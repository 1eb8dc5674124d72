#include "preload/xpu/tables.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace ipexrun::preload::xpu {
namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::size_t kRing = std::size_t{1} << 20;
constexpr std::size_t kLargest = kRing / 4;  ///< larger tables have memory of their own

std::uint64_t hash_of(const Words& words) {
  std::uint64_t out = words.size();
  for (const std::uint64_t word : words) out = (out ^ word) * 0x9e3779b97f4a7c15ull, out ^= out >> 29;
  return out;
}

/// Device memory that holds words by what they are, the oldest overwritten first: by the stream's order, so what runs still reads its own.
class Ring {
 public:
  /// nullptr: the driver has no memory.
  const void* put(::ipexrun::xpu::Device& device, const Words& words, StreamId stream) {
    const std::uint64_t hash = hash_of(words);
    for (const Entry& entry : entries_)
      if (entry.hash == hash && entry.words == words) return base_ + entry.at;
    if (base_ == nullptr) base_ = static_cast<char*>(device.allocate(kRing));
    if (base_ == nullptr) return nullptr;
    const std::size_t bytes = (words.size() * sizeof words[0] + 127) / 128 * 128;
    if (next_ + bytes > kRing) next_ = 0;
    const std::size_t from = next_, to = from + bytes;
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.at < to && from < entry.end; }),
                   entries_.end());
    device.send(base_ + from, words, stream);
    entries_.push_back({hash, from, to, words});
    next_ = to;
    return base_ + from;
  }

 private:
  struct Entry {
    std::uint64_t hash;
    std::size_t at, end;
    Words words;
  };
  char* base_ = nullptr;  // never given back
  std::size_t next_ = 0;
  std::deque<Entry> entries_;
};

/// The rows as the kernel reads them, and how many chunks they have.
std::int64_t words_of(const std::vector<Row>& rows, Words& words) {
  constexpr std::size_t kWords = 10;  // of common.cl's Row: ours, where its chunks begin, and one unused
  static_assert(sizeof(Row) == 8 * sizeof words[0]);
  words.resize(rows.size() * kWords);
  std::int64_t chunks = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::memcpy(&words[row * kWords], &rows[row], sizeof(Row));
    words[row * kWords + 8] = static_cast<std::uint64_t>(chunks);
    chunks += (rows[row].elements + kChunk - 1) / kChunk;
  }
  return chunks;
}

struct Regions {
  std::uint64_t version = 0;
  std::vector<std::uint64_t> addresses;  ///< of the rows
  std::vector<const void*> starts;
};
/// Where the driver's allocations begin that the rows' tensors lie in.
void find_regions(const Unit& unit, const std::vector<Row>& rows, Regions& regions) {
  const std::uint64_t version = unit.memory.segment_changes();
  std::vector<std::uint64_t> addresses;
  addresses.reserve(rows.size() * 6);
  for (const Row& row : rows)
    for (const std::uint64_t address : row.address)
      if (address != 0) addresses.push_back(address);
  if (version == regions.version && addresses == regions.addresses) return;
  regions.starts.clear();
  for (const std::uint64_t address : addresses)
    regions.starts.push_back(unit.memory.segment_of(reinterpret_cast<const void*>(address)));  // NOLINT(performance-no-int-to-ptr)
  std::sort(regions.starts.begin(), regions.starts.end());
  regions.starts.erase(std::unique(regions.starts.begin(), regions.starts.end()), regions.starts.end());
  regions.version = version;
  regions.addresses = std::move(addresses);
}

struct OfStream {
  Ring ring;
  std::map<const Kernel*, Regions> regions;
};

/// Memory of a table that the ring does not hold, until the launch is enqueued.
class Own {
 public:
  Own(const at::Tensor& on, const Words& words) : unit_(unit_of(on)) {
    address_ = unit_.memory.allocate(words.size() * sizeof words[0], stream_of(on));
    TORCH_CHECK_WITH(OutOfMemoryError, address_ != nullptr, "XPU out of memory: a table of tensors");
    unit_.device->send(address_, words, stream_of(on));
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  ~Own() { unit_.memory.free(address_); }
  [[nodiscard]] const void* address() const { return address_; }

 private:
  Unit& unit_;
  void* address_;
};

}  // namespace

bool has_tables(const at::Tensor& on) { return unit_of(on).device->reaches(); }

bool launch_table(const at::Tensor& on, Kernel& kernel, const std::vector<Row>& rows, const std::vector<Argument>& rest) {
  if (!has_tables(on)) return false;
  ::ipexrun::xpu::Device& device = *unit_of(on).device;
  Words table;
  const std::int64_t chunks = words_of(rows, table);
  if (chunks == 0) return true;
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<const void*, StreamId>, OfStream>;
  const std::lock_guard lock(mutex);
  const StreamId stream = stream_of(on);
  OfStream& mine = (*all)[{&device, stream}];
  std::optional<Own> own;
  const void* table_at = table.size() * sizeof table[0] <= kLargest ? mine.ring.put(device, table, stream) : nullptr;
  if (table_at == nullptr) table_at = own.emplace(on, table).address();
  Regions& regions = mine.regions[&kernel];
  find_regions(unit_of(on), rows, regions);
  std::vector<Argument> arguments{Argument::memory(table_at), Argument::value(static_cast<std::int32_t>(rows.size()))};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  // A CPU's item takes a chunk, a GPU's group does.
  const std::size_t group = device.facts().lanes ? static_cast<std::size_t>(group_of(on)) : 1;
  try {
    device.launch(kernel, arguments, {static_cast<std::size_t>(chunks) * group, 1, 1}, {group, 1, 1}, stream,
                  {regions.starts, regions.version});
  } catch (const ::ipexrun::xpu::DeviceError&) {
    if (has_tables(on)) throw;
    return false;  // the driver does not want to hear of addresses in memory
  }
  return true;
}

}  // namespace ipexrun::preload::xpu
