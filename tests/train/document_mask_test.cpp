// Training with --document_mask, from text files to checkpoints.
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

class DocumentMask : public TrainingTest {
 protected:
  // A document every line, of about 50 bytes: windows of 16 meet the end of every third.
  DocumentMask() {
    std::string text = made_up_text(800), separated;
    for (std::string_view line : split(text, '\n')) separated += cat(line, "\n<|endoftext|>\n");
    write("documents.txt", separated);
  }
  RunConfig masked(int64_t steps, bool mask = true) const {
    RunConfig config = options(steps);
    config.dataset = path("documents.txt");
    config.validation_fraction = 0.1;
    config.validation_freq = 4;
    config.gradient_accumulation_steps = 2;
    config.document_mask = mask;
    return config;
  }
};

TEST_F(DocumentMask, ResumesToTheBit) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2}) {  // the second with dropout
    SCOPED_TRACE(name(family));
    const ModelConfig model = tiny_model_of(family);
    RunConfig config = masked(9);
    config.checkpoint_dir = {path(cat("straight", name(family)))};
    RunTrace straight = train(config, model);
    config.checkpoint_dir = config.resume_from_checkpoint = {path(cat("ckpt", name(family)))};
    config.max_steps = 5;
    RunTrace first = train(config, model);
    config.max_steps = 9;
    RunTrace second = train(config, model);
    EXPECT_EQ(lines_with(second.log, "document_mask").size(), 0u);
    first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(first.losses, straight.losses);
    EXPECT_EQ(straight.losses.size(), 9u);
    EXPECT_FALSE(straight.validations.empty());
    EXPECT_EQ(second.fingerprint, straight.fingerprint);
  }
}

TEST_F(DocumentMask, ChangesWhatIsSeenWhereDocumentsEndOnly) {
  RunConfig config = masked(4), plain = masked(4, false);
  config.checkpoint_dir = plain.checkpoint_dir = {};
  RunTrace with = train(config), without = train(plain);
  EXPECT_NE(with.losses[0], without.losses[0]);
  EXPECT_NE(with.validations, without.validations);
  // Of one document the bits are the same.
  config.dataset = plain.dataset = path("text.txt");
  with = train(config), without = train(plain);
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.validations, without.validations);
  EXPECT_EQ(with.fingerprint, without.fingerprint);
}

// Rows of ids have no end of text, or one in their midst.
TEST_F(DocumentMask, RowsOfIdsAreDocumentsInJoinedText) {
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += cat("{\"input_ids\": [", i + 1, ", ", i + 2, ", 7, 9, 3]}\n");
  write("rows.jsonl", rows);
  RunConfig config = masked(2), plain = masked(2, false);
  config.dataset = plain.dataset = path("rows.jsonl");
  config.packing = plain.packing = "concatenate";
  config.checkpoint_dir = plain.checkpoint_dir = {};
  const RunTrace with = train(config), without = train(plain);
  EXPECT_NE(with.losses[0], without.losses[0]);
  EXPECT_NE(with.validations, without.validations);
}

TEST_F(DocumentMask, ResumingWithoutItIsWarnedOf) {
  RunConfig config = masked(2);
  train(config);
  config = masked(4, false);
  config.resume_from_checkpoint = {path("ckpt")};
  expect_contains(train(config).log, "--document_mask was True and is False");
}

}  // namespace
}  // namespace tessera
