#include "planning/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/shape.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Largest anonymous memory of a process less what it planned, over whole runs with validation and
// checkpoints (Llama of 5.5 M and GPT-2 of 60 M parameters, 1, 2 and 8 threads, AVX2): in bf16 3
// MiB, 11 MiB where text is tokenized; in f32 18 to 20 MiB with 2 threads and 55 MiB with 8, for
// oneDNN's code and scratch; 30 MiB more where the model is exported.
constexpr int64_t kBeside = int64_t{16} << 20, kBesidePerThread = int64_t{1} << 20;
constexpr int64_t kOneDnn = int64_t{8} << 20, kOneDnnPerThread = int64_t{5} << 20;
constexpr int64_t kExport = int64_t{32} << 20;
// What --use_profiler copies to measure the speed of memory.
constexpr int64_t kProfiler = int64_t{64} << 20;
// Page tables where there are no huge pages: 8 bytes for 4096.
constexpr int64_t kBytesPerPageTableByte = 512;
// A lane of a stream, without the window of what is packed: 0.7 MiB over gzip, 1.1 over zstd and xz
// (96 files of JSON lines of some KB, GPT-2's tokenizer, 96 lanes against one), up to 3 MiB of
// documents of 65 KB, of which a block of 1 MiB of a file on a server takes the place.
constexpr int64_t kLane = int64_t{3} << 20;
// A thread that reads for them, 8 to 11 MiB of such documents (8 lanes, 4 threads against one):
// freed memory that its arena keeps, the window of the file before among it.
constexpr int64_t kReadingThread = int64_t{8} << 20;
// Memory of a tokenizer over the size of its file: 9.4 in the step from 4,096 to 12,042 tokens.
constexpr int64_t kTokenizerPerFileByte = 10;

int64_t tokenizer_bytes(const fs::path& tokenizer) {
  std::error_code error;
  uintmax_t largest = 0;
  for (const fs::path& path : {tokenizer, tokenizer / "tokenizer.json",
                               tokenizer / "tokenizer.model", tokenizer / "vocab.json"}) {
    if (!fs::is_regular_file(path, error)) continue;
    uintmax_t size = fs::file_size(path, error);
    if (!error) largest = std::max(largest, size);
  }
  return static_cast<int64_t>(std::min<uintmax_t>(largest, uintmax_t{1} << 32));
}

std::string line_of(std::string_view& text) { return std::string(take_line(text)); }

int64_t number_of(const std::string& line) {
  const auto number = parse_number<int64_t>(line);
  TESSERA_CHECK(number, line);
  return *number;
}

}  // namespace

int64_t memory_beside_plan(const RunConfig& config, int64_t planned, int threads) {
  bool by_onednn = config.use_fp16 || !config.bf16;
  return kBeside + kBesidePerThread * threads +
         (by_onednn ? kOneDnn + kOneDnnPerThread * threads : 0) +
         (config.save_final_model ? kExport : 0) + (config.use_profiler ? kProfiler : 0) +
         planned / kBytesPerPageTableByte +
         kTokenizerPerFileByte * tokenizer_bytes(config.tokenizer);
}

int64_t memory_of_lanes(const RunConfig& config, int64_t data_ranks, int64_t reading) {
  const int64_t lanes = config.data_lanes / std::gcd(config.data_lanes, data_ranks);
  const int64_t threads = std::min(lanes, std::clamp<int64_t>(config.data_num_workers, 1, 64));
  return lanes * (kLane + reading) + threads * (kReadingThread + reading);
}

std::string RankMemory::to_text() const {
  std::string text = cat(planned, "\n", beside, "\n");
  for (const MemoryPool& pool : pools)
    text += cat(pool.id, "\n", pool.name, "\n", pool.available, "\n");
  return text;
}

RankMemory RankMemory::from_text(std::string_view text) {
  RankMemory memory;
  memory.planned = number_of(line_of(text));
  memory.beside = number_of(line_of(text));
  while (!text.empty()) {
    MemoryPool& pool = memory.pools.emplace_back();
    pool.id = line_of(text);
    pool.name = line_of(text);
    pool.available = number_of(line_of(text));
  }
  return memory;
}

std::optional<MemoryPool> smallest_pool(const RankMemory& rank) {
  auto smallest = std::ranges::min_element(rank.pools, {}, &MemoryPool::available);
  if (smallest == rank.pools.end()) return std::nullopt;
  return *smallest;
}

std::optional<MemoryShortage> find_shortage(std::span<const RankMemory> ranks) {
  struct Users {
    const MemoryPool* pool;  // as the rank that sees least of it has it
    int count = 0;
    int64_t planned = 0, beside = 0;
  };
  std::map<std::string, Users> by_id;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const MemoryPool& pool : ranks[r].pools) {
      std::string id = pool.id.empty() ? cat("rank ", r, " ", pool.name) : pool.id;
      Users& users = by_id.try_emplace(id, Users{&pool}).first->second;
      if (pool.available < users.pool->available) users.pool = &pool;
      ++users.count;
      users.planned = checked_add(users.planned, ranks[r].planned);
      users.beside = checked_add(users.beside, ranks[r].beside);
    }
  }
  std::optional<MemoryShortage> worst;
  for (const auto& [id, users] : by_id) {
    int64_t need = checked_add(users.planned, users.beside), available = users.pool->available;
    if (need <= available || (worst && worst->need - worst->available >= need - available))
      continue;
    std::string who = users.count == 1 ? "a rank needs " : cat(users.count, " ranks need ");
    int64_t for_plans = std::max<int64_t>(0, available - users.beside);
    worst = {.pool = users.pool->name,
             .ranks = users.count,
             .need = need,
             .available = available,
             .planned_each = for_plans / users.count,
             .text = cat(who, format_bytes(need), " (", format_bytes(users.planned),
                         " planned and about ", format_bytes(users.beside), " beside), and ",
                         users.pool->name, " has ", format_bytes(available), " left")};
  }
  return worst;
}

}  // namespace tessera
