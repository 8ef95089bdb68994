// A decoder with its cache against a program that runs the whole text for every token.
#include "generate/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "backends/cpu/cpu_backend.h"
#include "base/random.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

// Weights that make attention far from uniform.
class RandomWeights final : public ParameterSource {
 public:
  void read(std::string_view name, int64_t first, std::span<float> values) const override {
    bool norm = name.find("norm") != name.npos || name.find("ln_") != name.npos;
    norm = norm && name.ends_with("weight");
    for (size_t i = 0; i < values.size(); ++i) {
      double x = random_normal(5, stream_of(name), static_cast<uint64_t>(first) + i);
      values[i] = static_cast<float>(norm ? 1 + 0.1 * x : 0.15 * x);
    }
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
};

ModelConfig tiny(int64_t key_value_heads = 2, ModelType family = ModelType::kLlamaV2) {
  ModelConfig c = family_defaults(family);
  c.vocab_size = 101;
  c.hidden_width = 40;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_key_value_heads = key_value_heads;
  c.intermediate_size = 72;
  c.max_context_width = 512;
  derive_shape(c);
  return c;
}

std::vector<int32_t> random_text(int64_t tokens) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < static_cast<uint64_t>(tokens); ++i)
    ids.push_back(static_cast<int32_t>(random_below(9, 2, i, 101)));
  return ids;
}

struct Device {
  cpu::CpuBackend backend;
  explicit Device(int threads = 2, cpu::Isa isa = cpu::detect_isa()) : backend(threads, isa) {}
};

std::unique_ptr<Decoder> make_decoder(Device& device, const ModelConfig& model,
                                      const DecoderOptions& options) {
  auto decoder = std::make_unique<Decoder>(
      DecoderPrograms(model_builder(model), options, device.backend), device.backend);
  decoder->load(RandomWeights(), device.backend.pool());
  return decoder;
}

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
// In f32 each of the two is within 16 roundings of the exact logits; they differ by what the order
// of sums makes of it: 19 was seen on AVX2.
double bound(DType compute) { return compute == DType::kF32 ? 32 * 0x1p-23 : 2e-2; }

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

// Prompts that end inside, at and behind the border of a chunk, then token by token across it.
TEST_P(Decoders, GiveTheLogitsOfTheWholeText) {
  auto [shape, compute] = GetParam();
  ModelConfig model = shape.model();
  Device device;
  Whole whole(device, model, 150, compute);
  std::vector<int32_t> text = random_text(150);
  for (auto [prompt, last] : {std::pair{1, 3}, {2, 4}, {63, 67}, {64, 66}, {65, 66}, {130, 135}}) {
    DecoderOptions options{.context = 512, .prompts = {64}, .longest = 150, .compute = compute};
    auto decoder = make_decoder(device, model, options);
    ASSERT_EQ(decoder->chunk_length(150), 64);
    for (int n = prompt; n <= last; ++n) {
      std::span ids = std::span(text).first(static_cast<size_t>(n));
      EXPECT_LE(difference(decoder->next_logits(ids), whole.logits(ids)), bound(compute)) << n;
    }
    EXPECT_EQ(decoder->runs().steps, last - prompt + (prompt == 1));
    EXPECT_EQ(decoder->runs().chunks, prompt == 1 ? 0 : (prompt + 63) / 64);
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
      EXPECT_LE(difference(decoder->next_logits(ids), whole.logits(seen)), bound(DType::kF32)) << n;
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
