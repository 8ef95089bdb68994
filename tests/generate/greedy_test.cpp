// The likeliest continuations of the tiny models, token for token as Hugging Face transformers
// gives them (tools/goldens/greedy_goldens.py), with the cache and without.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "base/file.h"
#include "generate/decoder.h"
#include "generate/sampler.h"
#include "generate/trained_model.h"
#include "models/build_model.h"

namespace tessera {
namespace {

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/goldens";

nlohmann::json golden() { return nlohmann::json::parse(read_file(kGoldens + "/greedy.json")); }

std::vector<std::string> names() {
  std::vector<std::string> names;
  const nlohmann::json models = golden()["models"];
  for (const auto& [name, texts] : models.items()) names.push_back(name);
  return names;
}

class Greedy : public testing::TestWithParam<std::string> {
 protected:
  TrainedModel trained_ = open_trained_model(kGoldens + "/" + GetParam(), {});
  cpu::CpuBackend backend_{2, cpu::detect_isa()};

  std::unique_ptr<Decoder> decoder(int64_t prompt, int64_t longest) {
    const DecoderOptions options{
        .context = trained_.context, .prompts = {prompt}, .longest = longest};
    auto decoder = std::make_unique<Decoder>(
        DecoderPrograms(model_builder(trained_.model), options, backend_), backend_);
    decoder->load(*trained_.weights, backend_.pool());
    return decoder;
  }
};

TEST_P(Greedy, ContinuesAsTransformersDoes) {
  Sampler greedy({.temperature = 0});
  const nlohmann::json texts = golden()["models"][GetParam()];
  for (const auto& text : texts) {
    auto ids = text["prompt"].get<std::vector<int32_t>>();
    auto expected = text["continuation"].get<std::vector<int32_t>>();
    auto prompt = std::ssize(ids), longest = prompt + std::ssize(expected);
    SCOPED_TRACE(prompt);
    auto cached = decoder(prompt, longest);
    std::vector<int32_t> continuation;
    for (size_t i = 0; i < expected.size(); ++i) {
      continuation.push_back(greedy.choose(cached->next_logits(ids), i));
      if (i % 16 == 0) {  // the whole text at once, by a decoder that has seen nothing
        EXPECT_EQ(greedy.choose(decoder(longest, longest)->next_logits(ids), i),
                  continuation.back());
      }
      ids.push_back(continuation.back());
    }
    EXPECT_EQ(continuation, expected);
  }
}

// The same, all texts of a model twice through fewer rows: they have different lengths, and where
// one has ended the next begins.
TEST_P(Greedy, ContinuesManyTextsAtOnce) {
  struct Running {
    std::vector<int32_t> ids, expected;
    size_t prompt = 0;
  };
  std::vector<Running> texts;
  DecoderOptions options{.context = trained_.context, .prompts = {}, .longest = 1, .rows = 4};
  const nlohmann::json goldens = golden()["models"][GetParam()];
  for (int times = 0; times < 2; ++times) {
    for (const auto& text : goldens) {
      Running& r = texts.emplace_back(Running{text["prompt"], text["continuation"]});
      r.prompt = r.ids.size();
      options.prompts.push_back(std::ssize(r.ids));
      options.longest = std::max(options.longest, std::ssize(r.ids) + std::ssize(r.expected));
    }
  }
  Decoder decoder(DecoderPrograms(model_builder(trained_.model), options, backend_), backend_);
  decoder.load(*trained_.weights, backend_.pool());
  Sampler greedy({.temperature = 0});
  std::vector<Running*> rows(4, nullptr);
  for (size_t next = 0, ended = 0; ended < texts.size();) {
    std::vector<Decoder::Text> now;
    for (size_t row = 0; row < rows.size(); ++row) {
      if (!rows[row] && next < texts.size()) rows[row] = &texts[next++];
      if (rows[row]) now.push_back({static_cast<int64_t>(row), rows[row]->ids});
    }
    auto logits = decoder.next_logits(now);
    for (size_t i = 0; i < now.size(); ++i) {
      Running*& running = rows[static_cast<size_t>(now[i].row)];
      running->ids.push_back(greedy.choose(logits[i], 0));
      if (running->ids.size() < running->prompt + running->expected.size()) continue;
      EXPECT_EQ(std::vector(running->ids.begin() + static_cast<std::ptrdiff_t>(running->prompt),
                            running->ids.end()),
                running->expected);
      decoder.forget(now[i].row);
      running = nullptr;
      ++ended;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Greedy, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera
