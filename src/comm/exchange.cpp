#include "comm/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "comm/peer_transport.h"
#include "comm/rank_order_sum.h"

namespace tessera {
namespace {

constexpr int64_t kRoundBytes = 1 << 20;
constexpr int64_t kMinPieceBytes = 4096;
// Up to here every rank combines everything: one exchange instead of two.
constexpr int64_t kSmallAllReduceBytes = 8192;
// Parts of an all_reduce begin at a multiple of a cache line of every dtype.
constexpr int64_t kGranule = 64;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements [begin, end) of part `k` of `n` of `count` elements.
Part part_of(int64_t count, int k, int n) {
  int64_t width = divide_up(divide_up(count, n), kGranule) * kGranule;
  int64_t begin = std::min(count, k * width), end = std::min(count, begin + width);
  return {begin, 1, end - begin, end - begin};
}

// Rounds in which a part is moved: columns of one row, or several whole rows at a time.
int64_t rounds_of(const Part& part, int64_t piece) {
  if (part.rows == 0 || part.columns == 0) return 0;
  if (part.columns > piece) return part.rows * divide_up(part.columns, piece);
  return divide_up(part.rows, piece / part.columns);
}

Exchange new_exchange(const CommCall& call, int world_size) {
  Exchange exchange;
  exchange.group = call.group;
  exchange.dtype = call.dtype;
  exchange.target_dtype = call.output_dtype;
  exchange.reduction = call.reduction;
  exchange.source = static_cast<const std::byte*>(call.input);
  exchange.target = static_cast<std::byte*>(call.output);
  exchange.source_elements = call.input_elements();
  int64_t bytes = std::max(round_bytes(world_size) / call.group->size(), kMinPieceBytes);
  exchange.piece = bytes / size_of(call.dtype) / kGranule * kGranule;
  return exchange;
}

// The number of rounds must be the same on all ranks: `largest` is the largest part of any.
void set_rounds(Exchange& exchange, const Part& largest) {
  exchange.rounds = rounds_of(largest, exchange.piece);
}

Exchange simple_exchange(const CommCall& call, int world_size) {
  Exchange exchange = new_exchange(call, world_size);
  exchange.combine = call.action == CommAction::kReduceScatter;
  exchange.same_for_all = call.action == CommAction::kAllGather;
  int64_t n = call.group->size();
  // all_to_all has one row a rank and no outer dimension.
  int64_t rows = call.action == CommAction::kAllToAll ? 1 : call.outer;
  auto own = [&] { return Part{0, rows, call.inner, call.inner}; };
  auto one_of_n = [&](int64_t k) { return Part{k * call.inner, rows, call.inner, n * call.inner}; };
  for (int k = 0; k < n; ++k) {
    exchange.given.push_back(exchange.same_for_all ? own() : one_of_n(k));
    exchange.taken.push_back(exchange.same_for_all ? own() : one_of_n(call.group->index));
    exchange.placed.push_back(exchange.combine ? own() : one_of_n(k));
  }
  set_rounds(exchange, own());
  return exchange;
}

Exchange small_all_reduce(const CommCall& call, int world_size) {
  Exchange exchange = new_exchange(call, world_size);
  exchange.combine = exchange.same_for_all = exchange.copies_source = true;
  Part all{0, 1, call.outer * call.inner, call.outer * call.inner};
  exchange.given.assign(call.group->ranks.size(), all);
  exchange.taken = exchange.placed = exchange.given;
  set_rounds(exchange, all);
  return exchange;
}

std::vector<Exchange> large_all_reduce(const CommCall& call, int world_size) {
  int n = call.group->size();
  int64_t count = call.outer * call.inner;
  Exchange scatter = new_exchange(call, world_size);
  scatter.combine = true;
  CommCall results = call;
  results.dtype = call.output_dtype;
  results.input = call.output;
  Exchange gather = new_exchange(results, world_size);
  gather.same_for_all = true;
  Part mine = part_of(count, call.group->index, n);
  for (int k = 0; k < n; ++k) {
    Part part = part_of(count, k, n);
    scatter.given.push_back(part);
    scatter.taken.push_back(mine);
    scatter.placed.push_back(mine);
    gather.given.push_back(mine);
    gather.taken.push_back(part);
    gather.placed.push_back(part);
  }
  set_rounds(scatter, part_of(count, 0, n));
  set_rounds(gather, part_of(count, 0, n));
  return {std::move(scatter), std::move(gather)};
}

// The views of one round, by index in the group.
class Round {
 public:
  Round(const Exchange& exchange, const std::vector<PeerTransport*>& by_index, int64_t round)
      : exchange_(exchange), by_index_(by_index), round_(round) {}

  PieceView view(int from) const {
    const Part& part = exchange_.taken[static_cast<size_t>(from)];
    PeerTransport* transport = by_index_[static_cast<size_t>(from)];
    if (transport) return transport->take(from, round_);
    return {exchange_.source_of(part, exchange_.piece_of(part, round_)),
            part.stride * size_of(exchange_.dtype)};
  }

  // Starts after the own index, so that not all ranks read from the same one.
  void copy() const {
    int n = exchange_.group->size();
    for (int step = 1; step <= n; ++step) {
      int from = (exchange_.group->index + step) % n;
      const Part& placed = exchange_.placed[static_cast<size_t>(from)];
      Piece piece = exchange_.piece_of(placed, round_);
      if (piece.elements() == 0) continue;
      PieceView data = view(from);
      int64_t size = size_of(exchange_.dtype);
      copy_rows(data.data, data.stride, exchange_.target_of(placed, piece), placed.stride * size,
                piece.rows, piece.columns * size);
    }
  }

  void combine() const {
    const Part& placed = exchange_.placed.front();
    Piece piece = exchange_.piece_of(placed, round_);
    if (piece.elements() == 0) return;
    auto n = static_cast<size_t>(exchange_.group->size());
    std::vector<PieceView> views(n);
    for (size_t from = 0; from < n; ++from) views[from] = view(static_cast<int>(from));
    std::vector<const std::byte*> rows(n);
    std::byte* target = exchange_.target_of(placed, piece);
    for (int64_t row = 0; row < piece.rows; ++row) {
      for (size_t from = 0; from < n; ++from)
        rows[from] = views[from].data + row * views[from].stride;
      combine_in_rank_order(exchange_.reduction, exchange_.dtype, exchange_.target_dtype,
                            rows.data(), static_cast<int>(n), target, piece.columns);
      target += placed.stride * size_of(exchange_.target_dtype);
    }
  }

 private:
  const Exchange& exchange_;
  const std::vector<PeerTransport*>& by_index_;
  int64_t round_;
};

}  // namespace

int64_t round_bytes(int world_size) { return std::max(kRoundBytes, kMinPieceBytes * world_size); }

Piece Exchange::piece_of(const Part& part, int64_t round) const {
  if (round >= rounds_of(part, piece)) return {};
  if (part.columns > piece) {
    int64_t per_row = divide_up(part.columns, piece);
    int64_t column = round % per_row * piece;
    return {round / per_row, 1, column, std::min(piece, part.columns - column)};
  }
  int64_t row = round * (piece / part.columns);
  return {row, std::min(piece / part.columns, part.rows - row), 0, part.columns};
}

const std::byte* Exchange::source_of(const Part& part, const Piece& at) const {
  return source + (part.offset + at.row * part.stride + at.column) * size_of(dtype);
}

std::byte* Exchange::target_of(const Part& part, const Piece& at) const {
  return target + (part.offset + at.row * part.stride + at.column) * size_of(target_dtype);
}

std::vector<Exchange> exchanges_of(const CommCall& call, int world_size) {
  if (call.action != CommAction::kAllReduce) return {simple_exchange(call, world_size)};
  int64_t bytes = call.input_elements() * size_of(call.dtype);
  if (bytes <= kSmallAllReduceBytes) return {small_all_reduce(call, world_size)};
  return large_all_reduce(call, world_size);
}

void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
               int64_t rows, int64_t bytes) {
  if (from == to) return;
  if (from_stride == bytes && to_stride == bytes) {
    std::memcpy(to, from, static_cast<size_t>(rows * bytes));
    return;
  }
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(bytes));
}

void run_exchange(const Exchange& exchange, const std::vector<PeerTransport*>& transports) {
  if (exchange.rounds == 0) return;
  const CommGroup& group = *exchange.group;
  std::vector<PeerTransport*> by_index(group.ranks.size());
  for (int k = 0; k < group.size(); ++k) {
    if (k == group.index) continue;
    for (PeerTransport* transport : transports)
      if (transport->reaches(group.ranks[static_cast<size_t>(k)]))
        by_index[static_cast<size_t>(k)] = transport;
    TESSERA_CHECK(by_index[static_cast<size_t>(k)], cat("no way to index ", k));
  }
  for (PeerTransport* transport : transports) transport->begin(exchange);
  for (PeerTransport* transport : transports) transport->offer(0);
  for (int64_t round = 0; round < exchange.rounds; ++round) {
    if (round + 1 < exchange.rounds)
      for (PeerTransport* transport : transports) transport->offer(round + 1);
    Round step(exchange, by_index, round);
    exchange.combine ? step.combine() : step.copy();
    for (PeerTransport* transport : transports) transport->release(round);
  }
  for (PeerTransport* transport : transports) transport->end();
}

}  // namespace tessera
