// A decoder with its cache against a program that runs the whole text for every token.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "tests/backends/cpu/allocation_count.h"
#include "tests/generate/tiny_decoder.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

// The program without a cache, as training would run it: f32 weights, rounded inside.
class Whole {
 public:
  Whole(Device& device, const ModelConfig& model, int64_t length, DType compute)
      : program_(build_next_token(model_builder(model), {.length = length, .compute = compute})),
        executable_(device.backend.compile_host(program_.graph)) {
    arenas_.emplace(executable_->memory());
    executable_->bind(state_, *arenas_);
    copy_parameters(RandomWeights(), weight_targets(program_.parameters, program_.units, state_),
                    device.backend.pool());
    padded_.resize(static_cast<size_t>(length));
  }
  std::vector<float> logits(std::span<const int32_t> ids) {
    std::ranges::copy(ids, padded_.begin());
    auto last = static_cast<int32_t>(ids.size()) - 1;
    executable_->run({{"tokens", padded_.data()}, {"position", &last}});
    auto* values = static_cast<const float*>(executable_->output("logits"));
    return {values, values + 101};
  }

 private:
  NextToken program_;
  std::unique_ptr<HostExecutable> executable_;
  HostState state_;
  std::optional<HostArenas> arenas_;
  std::vector<int32_t> padded_;
};

// Largest difference as a share of the largest logit.
double difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
    largest = std::max(largest, static_cast<double>(std::abs(b[i])));
  }
  return worst / largest;
}
double square_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
  return sum;
}
// In f32 each of the two is within 16 roundings of the exact logits; they differ by what the order
// of sums makes of it: 19 was seen on AVX2.
constexpr double kBoundF32 = 32 * 0x1p-23;

struct Case {
  const char* name;
  int64_t key_value_heads, window;
  ModelType family = ModelType::kLlamaV2;
  bool stretched = false;  // and, with a window, none in the first layer

  ModelConfig model() const {
    ModelConfig c = tiny(key_value_heads, family);
    if (window > 0) c.sliding_window = window;
    if (family == ModelType::kGptNeox) c.rotary_pct = 0.4;
    if (stretched) {
      c.rope_scaling = {.type = RopeScalingType::kYarn,
                        .factor = 4,
                        .attention_factor = 1.3,
                        .original_max_position = 64};
    }
    if (stretched && window > 0) {
      c.windowed_layers.assign(static_cast<size_t>(c.num_layers), true);
      c.windowed_layers[0] = false;
    }
    return c;
  }
};
class Decoders : public testing::TestWithParam<std::tuple<Case, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    Models, Decoders,
    testing::Combine(testing::Values(Case{"full", 4, 0}, Case{"grouped", 2, 0},
                                     Case{"window", 1, 23}, Case{"gpt2", 4, 0, ModelType::kGpt2},
                                     Case{"neox", 4, 0, ModelType::kGptNeox},
                                     Case{"ministral", 2, 23, ModelType::kMistral, true},
                                     Case{"neox_yarn", 4, 0, ModelType::kGptNeox, true},
                                     Case{"qwen3", 2, 23, ModelType::kQwen3}),
                     testing::Values(DType::kF32, DType::kBF16)),
    [](const auto& test) {
      return cat(std::get<0>(test.param).name, "_", name(std::get<1>(test.param)));
    });

// Prompts that end inside, at and behind the border of a chunk, then token by token across it. In
// bf16 the decoder's mean error is at most 1.5 times that of the whole text.
TEST_P(Decoders, GiveTheLogitsOfTheWholeText) {
  auto [shape, compute] = GetParam();
  ModelConfig model = shape.model();
  Device device;
  Whole whole(device, model, 150, compute), exact(device, model, 150, DType::kF32);
  double error = 0, error_of_whole = 0;  // squared
  std::vector<int32_t> text = random_text(150);
  for (auto [prompt, last] : {std::pair{1, 3}, {2, 4}, {63, 67}, {64, 66}, {65, 66}, {130, 135}}) {
    DecoderOptions options{.context = 512, .prompts = {64}, .longest = 150, .compute = compute};
    auto decoder = make_decoder(device, model, options);
    ASSERT_EQ(decoder->chunk_length(150), 64);
    for (int n = prompt; n <= last; ++n) {
      std::span ids = std::span(text).first(static_cast<size_t>(n));
      std::vector<float> expected = exact.logits(ids);
      std::span<const float> logits = decoder->next_logits(ids);
      if (compute == DType::kF32) {
        EXPECT_LE(difference(logits, expected), kBoundF32) << n;
      }
      error += square_difference(logits, expected);
      error_of_whole += square_difference(whole.logits(ids), expected);
    }
    EXPECT_EQ(decoder->runs().steps, last - prompt + (prompt == 1));
    EXPECT_EQ(decoder->runs().chunks, prompt == 1 ? 0 : (prompt + 63) / 64);
  }
  if (compute != DType::kF32) {
    EXPECT_LE(std::sqrt(error), 1.5 * std::sqrt(error_of_whole));
  }
}

TEST_P(Decoders, GiveTheSameBitsForEveryNumberOfThreads) {
  auto [shape, compute] = GetParam();
  ModelConfig model = shape.model();
  std::vector<int32_t> text = random_text(80);
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    Device device(threads);
    auto decoder = make_decoder(
        device, model, {.context = 512, .prompts = {70}, .longest = 80, .compute = compute});
    std::vector<float> all;
    for (size_t n : {70, 71, 72, 80}) {
      auto logits = decoder->next_logits(std::span(text).first(n));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    if (first.empty()) first = all;
    EXPECT_EQ(std::memcmp(first.data(), all.data(), all.size() * sizeof(float)), 0) << threads;
  }
}

// Texts of different lengths that come and go, one of them longer than the context, in rows that
// held others before: at every call the bits that each has in a decoder of its own.
TEST_P(Decoders, TextsAtOnceHaveTheBitsOfEachAlone) {
  auto [shape, compute] = GetParam();
  const ModelConfig model = shape.model();
  constexpr size_t kRows = 5, kCalls = 12;
  const DecoderOptions options{
      .context = 90, .prompts = {1, 30, 70, 90}, .longest = 200, .rows = kRows, .compute = compute};
  DecoderOptions own = options;
  own.rows = 1;
  for (cpu::Isa isa : cpu::kIsas) {
    if (isa > cpu::detect_isa()) continue;
    SCOPED_TRACE(cpu::name(isa));
    Device device(2, isa);
    auto together = make_decoder(device, model, options);
    struct Running {
      std::vector<int32_t> text;
      int64_t tokens = 0;
      std::unique_ptr<Decoder> alone;
    };
    std::vector<Running> running(kRows);
    for (Running& r : running) r.alone = make_decoder(device, model, own);
    for (uint64_t call = 0; call < kCalls; ++call) {
      std::vector<Decoder::Text> texts;
      for (size_t i = 0; i < kRows; ++i) {
        const size_t row = (i + call) % kRows;  // in any order
        Running& r = running[row];
        const uint64_t draw = random_below(3, row, call, 8);
        if (r.tokens == 0 || draw == 0) {  // another text takes the row
          const int64_t lengths[] = {1, 2, 30, 64, 65, 89, 90, 100};
          together->forget(static_cast<int64_t>(row));
          r.alone->forget(0);
          r.text = random_text(200, 100 * call + row);
          r.tokens = lengths[random_below(4, row, call, 8)];
        } else if (draw == 1) {
          continue;  // it waits
        } else {
          ++r.tokens;
        }
        texts.push_back(
            {static_cast<int64_t>(row), std::span(r.text).first(static_cast<size_t>(r.tokens))});
      }
      auto results = together->next_logits(texts);
      ASSERT_EQ(results.size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        auto expected = running[static_cast<size_t>(texts[i].row)].alone->next_logits(texts[i].ids);
        EXPECT_EQ(std::memcmp(results[i].data(), expected.data(), expected.size_bytes()), 0)
            << "call " << call << ", row " << texts[i].row << ", " << texts[i].ids.size();
      }
    }
    EXPECT_GT(together->runs().steps, kCalls / 2);
  }
}

TEST(Decoder, StepsAllocateNothing) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    Device device;
    const DecoderOptions options{
        .context = 512, .prompts = {9}, .longest = 200, .rows = 3, .compute = compute};
    auto decoder = make_decoder(device, tiny(), options);
    std::vector<int32_t> texts[] = {random_text(100, 1), random_text(100, 2), random_text(100, 3)};
    int64_t before = 0;
    for (size_t n = 9; n < 60; ++n) {
      const Decoder::Text all[] = {{0, std::span(texts[0]).first(n)},
                                   {1, std::span(texts[1]).first(n + 3)},
                                   {2, std::span(texts[2]).first(n / 3)}};
      decoder->next_logits(std::span(all).first(n % 4 == 0 ? 2 : 3));
      if (n == 30) before = allocation_count();
    }
    EXPECT_EQ(allocation_count(), before) << name(compute);
  }
}

TEST(Decoder, PlansWhatItAllocates) {
  Device device;
  for (DType compute : {DType::kF32, DType::kBF16}) {
    int64_t one = 0;
    for (int64_t rows : {1, 2, 7}) {
      const DecoderOptions options{
          .context = 512, .prompts = {9, 200}, .longest = 300, .rows = rows, .compute = compute};
      DecoderPrograms programs(model_builder(tiny()), options, device.backend);
      int64_t planned = programs.planned();
      Decoder decoder(std::move(programs), device.backend);
      EXPECT_EQ(decoder.rows(), rows);
      int64_t logits = rows * 101 * 4, rounding = compute == DType::kF32 ? 0 : 64 << 20;
      EXPECT_EQ(planned, decoder.bytes() + logits + rounding);
      // A row of the cache: keys and values of 512 tokens in two layers of two heads of ten.
      if (rows == 1) one = decoder.bytes();
      EXPECT_GE(decoder.bytes() - one, (rows - 1) * 2 * 512 * 2 * 20 * size_of(compute));
    }
  }
}

TEST(Decoder, RefusesTextsThatShareARow) {
  Device device;
  auto decoder = make_decoder(device, tiny(), {.context = 64, .longest = 64, .rows = 2});
  const std::vector<int32_t> text = random_text(3);
  const Decoder::Text same[] = {{1, text}, {1, text}}, beyond[] = {{2, text}}, empty[] = {{0, {}}};
  EXPECT_THROW(decoder->next_logits(same), InternalError);
  EXPECT_THROW(decoder->next_logits(beyond), InternalError);
  EXPECT_THROW(decoder->next_logits(empty), InternalError);
}

TEST(Decoder, KeepsWhatTextsHaveInCommon) {
  Device device;
  ModelConfig model = tiny();
  std::vector<int32_t> text = random_text(100), other = text;
  other[70] ^= 1;
  DecoderOptions options{.context = 512, .prompts = {64}, .longest = 100};
  auto decoder = make_decoder(device, model, options), fresh = make_decoder(device, model, options);
  auto copy = [](std::span<const float> logits) {
    return std::vector<float>(logits.begin(), logits.end());
  };
  decoder->next_logits(text);
  EXPECT_EQ(decoder->runs().chunks, 2);
  // The same text again: only its last token is needed.
  auto again = copy(decoder->next_logits(text));
  EXPECT_EQ(decoder->runs().chunks, 2);
  EXPECT_EQ(decoder->runs().steps, 1);
  EXPECT_LE(difference(again, fresh->next_logits(text)), 2e-6);
  // Another one from token 70 on: the first chunk is kept, with equal bits.
  auto changed = copy(decoder->next_logits(other));
  EXPECT_EQ(decoder->runs().chunks, 3);
  auto anew = make_decoder(device, model, options);
  EXPECT_EQ(changed, copy(anew->next_logits(other)));
  // Shorter, and nothing in common.
  EXPECT_LE(difference(decoder->next_logits(std::span(other).first(50)),
                       copy(anew->next_logits(std::span(other).first(50)))),
            2e-6);
  EXPECT_EQ(decoder->runs().chunks, 3);
  decoder->next_logits(std::span(text).subspan(1, 20));
  EXPECT_EQ(decoder->runs().chunks, 4);
}

TEST(Decoder, WindowBegin) {
  EXPECT_EQ(window_begin(1, 16), 0);
  EXPECT_EQ(window_begin(16, 16), 0);
  for (int64_t n : {17, 18, 20}) EXPECT_EQ(window_begin(n, 16), 4) << n;
  EXPECT_EQ(window_begin(21, 16), 8);
  EXPECT_EQ(window_begin(5, 1), 4);
  for (int64_t window : {1, 2, 3, 7, 64}) {
    for (int64_t n = 1; n < 300; ++n) {
      int64_t seen = n - window_begin(n, window);
      EXPECT_GE(seen, 1);
      EXPECT_LE(seen, window);
      EXPECT_GT(seen, std::min(n - 1, window - std::max<int64_t>(1, window / 4)));
    }
  }
}

// A context that is no multiple of a chunk or a block: its last chunk begins earlier.
TEST(Decoder, ATextLongerThanTheContextIsSeenFromItsEnd) {
  Device device;
  ModelConfig model = tiny();
  for (int64_t context : {12, 64, 100}) {
    SCOPED_TRACE(context);
    Whole whole(device, model, context, DType::kF32);
    std::vector<int32_t> text = random_text(2 * context + 7);
    auto decoder =
        make_decoder(device, model, {.context = context, .prompts = {20}, .longest = 1000});
    EXPECT_EQ(decoder->window(), context);
    for (int64_t n = context - 9; n <= std::ssize(text); n += n < context + 4 ? 1 : 5) {
      std::span ids = std::span(text).first(static_cast<size_t>(n));
      std::span seen = ids.subspan(static_cast<size_t>(window_begin(n, context)));
      EXPECT_LE(difference(decoder->next_logits(ids), whole.logits(seen)), kBoundF32) << n;
    }
  }
}

TEST(Decoder, HoldsWeightsInTheDtypeOfTheProgram) {
  Device device;
  ModelConfig model = tiny();
  model.vocab_size = 5000;  // most of the bytes are weights
  DecoderOptions options{.context = 512, .prompts = {10}, .longest = 20};
  auto f32 = make_decoder(device, model, options);
  options.compute = DType::kBF16;
  auto bf16 = make_decoder(device, model, options);
  EXPECT_LT(bf16->bytes(), f32->bytes() * 6 / 10);
  EXPECT_EQ(f32->window(), 256);  // no longer than what is expected
}

}  // namespace
}  // namespace tessera
