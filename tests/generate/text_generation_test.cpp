// Prompts through rows of a decoder: what each becomes, and when it ends.
#include "generate/text_generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/base/error_expectation.h"
#include "tests/generate/tiny_decoder.h"

namespace tessera {
namespace {

struct Completion {
  std::string text;
  int64_t tokens = -1;
  FinishReason reason = FinishReason::kStop;
  bool operator==(const Completion&) const = default;
};

class BrokenWeights final : public ParameterSource {
 public:
  void read(std::string_view, int64_t, std::span<float> values) const override {
    std::ranges::fill(values, NAN);
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
};

class TextGeneration : public testing::Test {
 protected:
  ModelConfig model_ = [] {
    ModelConfig model = tiny();
    model.vocab_size = 300;  // more than the tokenizer has
    return model;
  }();
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("byte");
  Device device_;
  GenerationOptions options_{.sampling = {.temperature = 0.7}, .max_new_tokens = 40};
  int64_t context_ = 512;

  std::vector<int32_t> ids(std::string_view text) const {
    std::vector<int32_t> ids{tokenizer_->end_of_text()};
    tokenizer_->encode(text, ids);
    return ids;
  }

  std::vector<Completion> run(const std::vector<std::string>& prompts, int64_t rows,
                              const ParameterSource& weights = RandomWeights()) {
    DecoderOptions decoding{.context = context_, .prompts = {}, .longest = 300, .rows = rows};
    std::vector<std::vector<int32_t>> texts;
    for (const std::string& prompt : prompts) {
      texts.push_back(ids(prompt));
      decoding.prompts.push_back(std::ssize(texts.back()));
    }
    Decoder decoder(DecoderPrograms(model_builder(model_), decoding, device_.backend),
                    device_.backend);
    decoder.load(weights, device_.backend.pool());
    std::vector<Completion> completions(prompts.size());
    GenerationSpeed speed =
        generate(decoder, *tokenizer_, options_, texts,
                 {[&](size_t i, std::string_view text) { completions[i].text += text; },
                  [&](size_t i, FinishReason reason, int64_t tokens) {
                    EXPECT_EQ(completions[i].tokens, -1) << "ended twice";
                    completions[i].tokens = tokens;
                    completions[i].reason = reason;
                  }});
    int64_t sampled = 0;
    for (const Completion& c : completions) sampled += c.tokens;
    EXPECT_LE(speed.tokens, sampled);  // the first token of each comes with its prompt
    return completions;
  }
};

const std::vector<std::string> kPrompts{"a",         "the quick brown fox", "",   "xyz", "a",
                                        "of spring", std::string(150, 'q'), "to", "be"};

TEST_F(TextGeneration, DoesNotDependOnWhatIsComputedBeside) {
  for (int64_t context : {512, 60}) {  // all texts fit, and most grow beyond it
    context_ = context;
    options_.max_new_tokens = 70;
    auto one_by_one = run(kPrompts, 1);
    for (int64_t rows : {2, 3, 9, 16}) EXPECT_EQ(run(kPrompts, rows), one_by_one) << rows;
    EXPECT_EQ(run({kPrompts[0]}, 1)[0], one_by_one[0]);
    EXPECT_NE(one_by_one[0], one_by_one[4]);  // each prompt has its own draws
    options_.sampling.temperature = 0;
    auto likeliest = run(kPrompts, 3);
    EXPECT_EQ(likeliest[0], likeliest[4]);
    EXPECT_EQ(run({kPrompts[1], kPrompts[6]}, 2),
              (std::vector<Completion>{likeliest[1], likeliest[6]}));
    options_.sampling.temperature = 0.7;
  }
}

TEST_F(TextGeneration, EachTextEndsByItself) {
  auto whole = run(kPrompts, 3);
  for (const Completion& c : whole) EXPECT_TRUE(c.reason == FinishReason::kLength || c.tokens < 40);
  // A token that only some of them have at some place ends those there.
  std::string letters;
  for (const Completion& c : whole) letters += c.text;
  const char end = *std::ranges::find_if(letters, [](char c) { return std::isalpha(c) != 0; });
  options_.end_ids = {static_cast<unsigned char>(end)};
  auto ended = run(kPrompts, 3);
  options_.end_ids.clear();
  options_.stops = {std::string(1, end)};
  auto stopped = run(kPrompts, 3);
  int stops = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    size_t at = whole[i].text.find(end);
    EXPECT_EQ(ended[i].text, whole[i].text.substr(0, at)) << i;
    EXPECT_EQ(stopped[i].text, ended[i].text) << i;
    if (at == std::string::npos) {
      EXPECT_EQ(ended[i], whole[i]);
      EXPECT_EQ(stopped[i], whole[i]);
      continue;
    }
    ++stops;
    EXPECT_EQ(ended[i].reason, FinishReason::kStop);
    EXPECT_EQ(stopped[i].reason, FinishReason::kStop);
    EXPECT_EQ(stopped[i].tokens, ended[i].tokens + 1);  // the stop text was sampled
  }
  EXPECT_GT(stops, 0);
}

TEST_F(TextGeneration, NoNewTokens) {
  options_.max_new_tokens = 0;
  EXPECT_EQ(run(kPrompts, 2),
            std::vector<Completion>(kPrompts.size(), {"", 0, FinishReason::kLength}));
  options_.max_new_tokens = 1;
  for (const Completion& c : run(kPrompts, 2)) EXPECT_LE(c.tokens, 1);
}

TEST_F(TextGeneration, OutputsThatAreNotFiniteAreAnError) {
  options_.model = "ckpt/broken";
  expect_contains(user_error([&] { run({"a", "b"}, 2, BrokenWeights()); }), "not finite");
}

}  // namespace
}  // namespace tessera
