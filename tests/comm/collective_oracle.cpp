#include "tests/comm/collective_oracle.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "base/text.h"

namespace tessera {
namespace {

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

int64_t input_count(const CollectiveCase& c, const CommGroup& group) {
  bool all = c.action == CommAction::kReduceScatter || c.action == CommAction::kAllToAll;
  return c.outer * c.inner * (all ? group.size() : 1);
}

// Element e of the input of `rank`: sums of floating-point numbers of different sizes round, so the
// order of the summands shows.
double number(const CollectiveCase& c, int rank, int64_t e) {
  uint64_t bits = mix(c.seed * 1000003 + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15u +
                      static_cast<uint64_t>(e));
  double value = static_cast<double>(static_cast<int32_t>(bits)) * 0x1p-31;
  return c.dtype == DType::kI32 || c.dtype == DType::kI64 ? value * 1e9
                                                          : value * (1 << (bits >> 60));
}

void store(double v, DType dtype, std::byte* at) {
  auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::kF32: return put(static_cast<float>(v));
    case DType::kBF16: return put(BF16(static_cast<float>(v)));
    case DType::kF16: return put(F16(static_cast<float>(v)));
    case DType::kI32: return put(static_cast<int32_t>(v));
    case DType::kI64: return put(static_cast<int64_t>(v));
    default: return put(v);
  }
}

// The sum (or maximum) over the ranks of their element e, into `at`.
void combine(const CollectiveCase& c, const CommGroup& group, int64_t e, std::byte* at) {
  double f64 = 0;
  float f32 = 0;
  uint64_t integer = 0;
  bool first = true;
  for (int rank : group.ranks) {
    double v = number(c, rank, e);
    float v32 = static_cast<float>(v);
    if (c.dtype == DType::kBF16) v32 = static_cast<float>(BF16(v32));
    if (c.dtype == DType::kF16) v32 = static_cast<float>(F16(v32));
    auto v64 = static_cast<uint64_t>(static_cast<int64_t>(v));
    bool max = c.reduction == Reduction::kMax;
    if (first) {
      f64 = v, f32 = v32, integer = v64;
    } else {
      f64 = max ? std::max(f64, v) : f64 + v;
      f32 = max ? std::max(f32, v32) : f32 + v32;
      integer = !max ? integer + v64
                     : static_cast<uint64_t>(
                           std::max(static_cast<int64_t>(integer), static_cast<int64_t>(v64)));
    }
    first = false;
  }
  auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (c.output_dtype) {
    case DType::kF32: return put(f32);
    case DType::kBF16: return put(BF16(f32));
    case DType::kF16: return put(F16(f32));
    case DType::kI32: return put(static_cast<uint32_t>(integer));
    case DType::kI64: return put(integer);
    default: return put(f64);
  }
}

}  // namespace

std::string describe(const CollectiveCase& c) {
  return cat(name(c.action), c.reduction == Reduction::kMax ? " max " : " ", name(c.dtype), " to ",
             name(c.output_dtype), " [", c.outer, ", ", c.inner, "]");
}

std::vector<CollectiveCase> collective_cases(int ranks) {
  struct Size {
    int64_t outer, inner;
  };
  const Size small[] = {{1, 1}, {1, 0}, {0, 5}, {1, 77}, {5, 13}, {3, 1027}, {129, 64}};
  // Three rounds of 1 MiB: one long row, long rows, many short ones.
  const int64_t floats = 5 * (1 << 20) / 2 / 4 / ranks + 1;
  struct Types {
    DType in, out;
  };
  const Types sums[] = {{DType::kF32, DType::kF32},  {DType::kBF16, DType::kBF16},
                        {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF16},
                        {DType::kF16, DType::kF32},  {DType::kF64, DType::kF64},
                        {DType::kI32, DType::kI32},  {DType::kI64, DType::kI64}};
  std::vector<CollectiveCase> cases;
  auto add = [&](CommAction action, Types types, Size size, Reduction reduction) {
    if (action == CommAction::kAllToAll) size = {1, size.outer * size.inner};
    cases.push_back({.action = action,
                     .dtype = types.in,
                     .output_dtype = types.out,
                     .outer = size.outer,
                     .inner = size.inner,
                     .reduction = reduction,
                     .seed = cases.size()});
  };
  for (CommAction action : {CommAction::kAllGather, CommAction::kReduceScatter,
                            CommAction::kAllReduce, CommAction::kAllToAll}) {
    bool combines = action == CommAction::kReduceScatter || action == CommAction::kAllReduce;
    for (Types types : sums) {
      if (!combines && types.in != types.out) continue;
      // How bytes are cut up depends on their number alone: a few sizes do for the rarer types.
      bool rare = types.in != DType::kF32 && types.in != DType::kBF16;
      for (Size size : small) {
        if (rare && size.outer != 3 && size.outer != 5) continue;
        add(action, types, size, Reduction::kSum);
        if (combines && size.inner > 1000) add(action, types, size, Reduction::kMax);
      }
    }
    // Of an all_reduce each rank takes a part of the whole.
    int64_t scale = action == CommAction::kAllReduce ? ranks : 1;
    add(action, sums[0], {1, floats * scale}, Reduction::kSum);
    if (action == CommAction::kAllToAll) continue;
    add(action, sums[0], {3, floats / 2 * scale}, Reduction::kSum);
    add(action, combines ? sums[2] : sums[1], {floats / 67, 67 * scale}, Reduction::kSum);
  }
  return cases;
}

CommCall call_of(const CollectiveCase& c, const CommGroup& group, const void* input, void* output) {
  return {.action = c.action,
          .group = &group,
          .dtype = c.dtype,
          .output_dtype = c.output_dtype,
          .reduction = c.reduction,
          .outer = c.outer,
          .inner = c.inner,
          .input = input,
          .output = output,
          .label = "a call of the suite"};
}

std::vector<std::byte> input_of(const CollectiveCase& c, const CommGroup& group, int rank) {
  int64_t count = input_count(c, group), size = size_of(c.dtype);
  std::vector<std::byte> data(static_cast<size_t>(count * size));
  for (int64_t e = 0; e < count; ++e) store(number(c, rank, e), c.dtype, data.data() + e * size);
  return data;
}

std::vector<std::byte> expected_output(const CollectiveCase& c, const CommGroup& group, int index) {
  int64_t n = group.size(), size = size_of(c.output_dtype);
  bool all = c.action == CommAction::kAllGather || c.action == CommAction::kAllToAll;
  int64_t columns = all ? n * c.inner : c.inner;
  std::vector<std::byte> data(static_cast<size_t>(c.outer * columns * size));
  for (int64_t row = 0; row < c.outer; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      std::byte* at = data.data() + (row * columns + column) * size;
      int64_t from = c.inner ? column / c.inner : 0, rest = c.inner ? column % c.inner : 0;
      switch (c.action) {
        case CommAction::kAllGather:
          store(number(c, group.ranks[static_cast<size_t>(from)], row * c.inner + rest), c.dtype,
                at);
          break;
        case CommAction::kAllToAll:
          store(number(c, group.ranks[static_cast<size_t>(from)], index * c.inner + rest), c.dtype,
                at);
          break;
        case CommAction::kReduceScatter:
          combine(c, group, (row * n + index) * c.inner + column, at);
          break;
        case CommAction::kAllReduce: combine(c, group, row * c.inner + column, at); break;
      }
    }
  }
  return data;
}

CollectiveTable::CollectiveTable(int world, uint64_t every) {
  for (const CollectiveCase& c : collective_cases(world)) {
    if (c.seed % every != 0) continue;
    CommGroup group;
    for (int rank = 0; rank < world; ++rank) group.ranks.push_back(rank);
    Entry entry{c, {}, {}};
    bool same = c.action == CommAction::kAllGather || c.action == CommAction::kAllReduce;
    for (int rank = 0; rank < world; ++rank) {
      entry.inputs.push_back(input_of(c, group, rank));
      if (rank == 0 || !same) entry.outputs.push_back(expected_output(c, group, rank));
    }
    entries.push_back(std::move(entry));
  }
}

}  // namespace tessera
