#include "backends/xla/emitter.h"
#include "base/random.h"

namespace tessera::xla {

// The bits of base/random.h: a call of the generator gives eight of them.
//
// A line of the last dim has blocks of kRandomBlock numbers, 16 calls each. In a block, number n is
// in the half n / 64 of the call's words, of call n % 64 / 4, in word n % 4 / 2 of that half, and
// in its bits from n % 2 * 16 on: reshapes and concatenations bring them into this order.
Tensor Emitter::random_bits(const Node& node) {
  const auto& op = static_cast<const RandomBits&>(*node.op);
  RandomPart part{type_of_output(node).shape, type_of_output(node).shape, {}};
  if (!op.part().whole()) {
    part.whole[static_cast<size_t>(op.part().dim)] = op.part().size;
    part.begins[op.part().dim] = in(node, 1);
  }
  return random_bits(in(node, 0), op.stream(), part);
}

Tensor Emitter::random_bits(const Tensor& row_keys, const std::string& stream,
                            const RandomPart& part) {
  constexpr int64_t kCalls = 16;  // of a block
  const auto& [shape, whole, begins] = part;
  const int64_t last = std::ssize(shape) - 1;
  // A part along the last dim begins anywhere in a line: its lines are made whole.
  const bool cut = begins.contains(last);
  const int64_t width = last >= 1 ? (cut ? whole : shape)[static_cast<size_t>(last)] : 1;
  const int64_t blocks = (width + kRandomBlock - 1) / kRandomBlock;

  // Numbers of the calls, [B, lines..., blocks * kCalls], counted in the whole row.
  Shape lines(shape.begin(), shape.begin() + std::max<int64_t>(1, last));
  Shape calls = lines;
  calls.push_back(blocks * kCalls);
  auto number = [&](int64_t v) { return text_.splat(calls, "i64", static_cast<uint64_t>(v)); };
  Tensor index = text_.iota(calls, "i64", std::ssize(calls) - 1);
  int64_t stride = blocks * kCalls;
  for (int64_t d = last - 1; d >= 1; --d) {
    Tensor line = text_.iota(calls, "i64", d);
    if (auto begin = begins.find(d); begin != begins.end())
      line = text_.binary("add", line, text_.spread(text_.convert(begin->second, "i64"), calls));
    index = text_.binary("add", index, text_.binary("multiply", line, number(stride)));
    stride *= whole[static_cast<size_t>(d)];
  }

  const Tensor key = text_.broadcast(row_keys, calls, Shape{0});
  auto low = [&](const Tensor& x) { return text_.convert(x, "ui32"); };
  auto high = [&](const Tensor& x) {
    return low(text_.binary("shift_right_logical", x, number(32)));
  };
  const uint64_t number_of_stream = stream_of(stream);
  const std::vector<Tensor> words =
      philox({low(index), high(index), text_.splat(calls, "ui32", number_of_stream & 0xffffffffu),
              text_.splat(calls, "ui32", number_of_stream >> 32)},
             {low(key), high(key)});

  // [B, lines..., blocks, half, call, word], then each word as two numbers.
  auto with = [&](std::initializer_list<int64_t> more) {
    Shape result = lines;
    result.insert(result.end(), more);
    return result;
  };
  const int64_t dims = std::ssize(lines) + 4;
  std::vector<Tensor> halves;
  for (size_t half = 0; half < 2; ++half) {
    std::vector<Tensor> pair;
    for (size_t word = 0; word < 2; ++word)
      pair.push_back(text_.reshape(words[2 * half + word], with({blocks, 1, kCalls, 1})));
    halves.push_back(text_.concatenate(pair, dims - 1));
  }
  const Tensor ordered = text_.concatenate(halves, dims - 3);
  Tensor bits = text_.op("bitcast_convert", {{ordered}}, with({blocks, 2, kCalls, 2, 2}), "ui16");
  bits = text_.reshape(bits, with({blocks * kRandomBlock}));
  if (cut) {
    bits = text_.slice_at(bits, last, begins.at(last), shape[static_cast<size_t>(last)]);
  } else if (width != blocks * kRandomBlock) {
    bits = text_.slice(bits, std::ssize(lines), 0, width);
  }
  // They are made once, not by everyone who reads them.
  return text_.convert(text_.barrier(text_.reshape(bits, shape)), "i32");
}

std::vector<Tensor> Emitter::philox(std::vector<Tensor> counter, std::vector<Tensor> key) {
  const Shape shape = counter[0].shape;
  auto multiplied = [&](const Tensor& x, uint32_t by) {
    return text_.binary("multiply", text_.convert(x, "ui64"), text_.splat(shape, "ui64", by));
  };
  auto low = [&](const Tensor& x) { return text_.convert(x, "ui32"); };
  auto high = [&](const Tensor& x) {
    return low(text_.binary("shift_right_logical", x, text_.splat(shape, "ui64", 32)));
  };
  auto mixed = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return text_.binary("xor", text_.binary("xor", a, b), c);
  };
  std::vector<Tensor> carried = counter;
  carried.insert(carried.end(), key.begin(), key.end());
  return text_.loop(10, carried, [&](const Tensor&, std::span<const Tensor> c) {
    const Tensor a = multiplied(c[0], 0xD2511F53u), b = multiplied(c[2], 0xCD9E8D57u);
    return std::vector<Tensor>{mixed(high(b), c[1], c[4]),
                               low(b),
                               mixed(high(a), c[3], c[5]),
                               low(a),
                               text_.binary("add", c[4], text_.splat(shape, "ui32", 0x9E3779B9u)),
                               text_.binary("add", c[5], text_.splat(shape, "ui32", 0xBB67AE85u))};
  });
}

}  // namespace tessera::xla
