#include "hub/tokenizer_files.h"

#include "base/file.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

TEST(TokenizerFiles, AreCopiedUnderTheNamesOfTransformers) {
  ScratchDirectory scratch;
  std::filesystem::path from = scratch / "from", to = scratch / "to";
  std::filesystem::create_directory(from);
  std::filesystem::create_directory(to);
  EXPECT_FALSE(has_tokenizer(from));
  for (const char* name : {"encoder.json", "vocab.bpe", "generation_config.json", "config.json",
                           "pytorch_model.bin", "README.md"})
    make_file(from / name, name);
  EXPECT_TRUE(has_tokenizer(from));
  copy_tokenizer_files(from, to);
  EXPECT_EQ(names_in(to), (Names{"vocab.json", "merges.txt", "generation_config.json"}));
  EXPECT_EQ(read_file(to / "merges.txt"), "vocab.bpe");
  EXPECT_TRUE(has_tokenizer(to));
  EXPECT_FALSE(is_tokenizer_file("config.json"));
  EXPECT_TRUE(is_tokenizer_file("vocab.bpe"));
}

}  // namespace
}  // namespace tessera
