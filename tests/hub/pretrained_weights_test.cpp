#include "hub/pretrained_weights.h"

#include <cstdio>

#include "base/error.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

// What is wrong with a file for tiny_llama(), or a tied one.
std::string misfit(const WeightFile& file, bool tied = false) {
  ScratchDirectory scratch;
  file.write(scratch / "model.safetensors");
  return user_error(
      [&] { PretrainedWeights weights(scratch.path(), kLlamaNames, tiny_llama(tied)); });
}

TEST(PretrainedWeights, ReadsEveryTypeExactly) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    ScratchDirectory scratch;
    file_of(tiny_llama(), dtype).write(scratch / "model.safetensors");
    PretrainedWeights weights(scratch.path(), kLlamaNames, tiny_llama());
    for (const FileTensor& p : tiny_llama()) {
      std::vector<float> all = whole(weights, p);
      for (size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], WeightFile::value(p.name, static_cast<int64_t>(i))) << p.name;
      std::vector<float> part(3);
      weights.read(p.name, 2, part);
      EXPECT_EQ(part, std::vector<float>(all.begin() + 2, all.begin() + 5));
    }
  }
}

TEST(PretrainedWeights, FillsPiecesThroughThreads) {
  ScratchDirectory scratch;
  // More than a tile and more than a window of copy_parameters().
  FileTensor large{"model.embed_tokens.weight", {1 << 12, (1 << 12) + 160}};
  FileTensor norm{"model.norm.weight", {6}};
  std::vector<FileTensor> shapes{large, norm};
  file_of(shapes, DType::kBF16).write(scratch / "model.safetensors");
  PretrainedWeights weights(scratch.path(), kLlamaNames, shapes);
  std::vector<float> out(static_cast<size_t>(num_elements(large.shape)), -100);
  int64_t half = num_elements(large.shape) / 2;
  std::vector<ParameterTarget> targets{{large.name, {{5, 10, 5}, {20, half, 20}}, into(out)},
                                       {norm.name, {}}};
  ThreadPool pool(3);
  copy_parameters(weights, targets, pool);
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    bool wanted = (i >= 5 && i < 15) || (i >= 20 && i < 20 + half);
    ASSERT_EQ(out[static_cast<size_t>(i)], wanted ? WeightFile::value(large.name, i) : -100) << i;
  }
}

// GPT-2's Conv1D: element [r, c] of the parameter is [c, r] in the file, for any part of it.
TEST(PretrainedWeights, TransposesOnTheWay) {
  constexpr int64_t kRows = 150, kColumns = 7;
  FileTensor fc{"transformer.h.0.mlp.c_fc.weight", {kColumns, kRows}, true};
  ScratchDirectory scratch;
  WeightFile file;
  file.add("h.0.mlp.c_fc.weight", fc.shape, DType::kF16);
  file.add("h.0.attn.bias", {1, 1, 4, 4});
  file.write(scratch / "model.safetensors");
  PretrainedWeights weights(scratch.path(), kGpt2Names, std::vector<FileTensor>{fc});
  for (auto [first, count] : {std::pair{0, kRows * kColumns}, {5, 3}, {200, 700}, {1000, 50}}) {
    std::vector<float> part(static_cast<size_t>(count));
    weights.read(fc.name, first, part);
    for (int64_t i = 0; i < count; ++i) {
      int64_t r = (first + i) / kColumns, c = (first + i) % kColumns;
      ASSERT_EQ(part[static_cast<size_t>(i)],
                WeightFile::value("h.0.mlp.c_fc.weight", c * kRows + r))
          << first << " " << i;
    }
  }
}

// PyTorch stores views as they are: a parameter may be the transpose of one, too.
TEST(PretrainedWeights, ReadsViewsOfStorages) {
  const std::filesystem::path file =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens/torch_files/plain.pt";
  constexpr std::string_view kOthers[] = {"16", "64", "32", "8", "c", "b", "r", "3", "l", "y", "w"};
  FamilyNames family{"llama", "model.", "f32", "twin", kOthers};
  FileTensor straight{"transposed", {3, 2}}, turned{"transposed", {3, 2}, true};
  FileTensor embedding{"f32", {2, 3, 4}}, permuted{"permuted", {4, 2, 3}},
      expanded{"expanded", {3, 2}};
  for (const FileTensor& t : {straight, turned}) {
    PretrainedWeights weights(file, family, std::vector{t, embedding, permuted, expanded});
    EXPECT_EQ(whole(weights, t), t.transposed ? (std::vector<float>{0, 1, 2, 3, 4, 5})
                                              : (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(whole(weights, permuted)[1], 4);
    EXPECT_EQ(whole(weights, expanded)[4], 1.5);
    weights.advise(t.name, 0, 6, Advice::kSoon);
  }
}

TEST(PretrainedWeights, NamesAllThatIsMissingOrTooMuch) {
  std::vector<FileTensor> shapes = tiny_llama();
  WeightFile none;
  none.add("model.embed_tokens.weight", {11, 6});
  expect_contains(misfit(none),
                  "do not fit this llama model: 3 tensors are missing: "
                  "model.layers.0.mlp.gate_proj.weight [4, 6], model.norm.weight [6], "
                  "lm_head.weight [11, 6]; is its configuration that of these weights?");
  WeightFile more = file_of(shapes);
  for (int layer = 1; layer < 8; ++layer)
    more.add(cat("model.layers.", layer, ".mlp.gate_proj.weight"), {4, 6});
  expect_contains(misfit(more),
                  "7 tensors are not part of the model: "
                  "model.layers.1.mlp.gate_proj.weight [4, 6], ");
  expect_contains(misfit(more), " and 2 more; is its");
  WeightFile other;
  other.add("model.embedding.weight", {11, 6});
  expect_contains(misfit(other), "4 tensors are missing");
  expect_contains(misfit(other), "; 1 tensor is not part of the model");
}

TEST(PretrainedWeights, NamesTensorAndBothShapesOrTypes) {
  WeightFile wide, whole_numbers;
  for (const FileTensor& p : tiny_llama()) {
    bool norm = p.name == "model.norm.weight";
    wide.add(p.name, norm ? Shape{7} : p.shape, DType::kBF16);
    whole_numbers.add(p.name, p.shape, norm ? DType::kI32 : DType::kF32);
  }
  expect_contains(misfit(wide), "tensor 'model.norm.weight' in '");
  expect_contains(misfit(wide), "' is bf16 [7], the model needs f32, bf16 or f16 [6]");
  expect_contains(misfit(whole_numbers), "' is i32 [6], the model needs f32, bf16 or f16 [6]");
}

// Types that only the format knows are left alone where they hold no weights.
TEST(PretrainedWeights, TakesForeignTypesForMasksOnly) {
  ScratchDirectory scratch;
  auto write = [&](const std::string& foreign, const std::string& plain) {
    std::string header =
        cat("{\"", foreign, R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},")", plain,
            R"(":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})");
    uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), 8);
    make_file(scratch / "model.safetensors", file + header + std::string(8, '\0'));
  };
  std::vector<FileTensor> norm{{"model.norm.weight", {1}}};
  write("model.layers.0.self_attn.rotary_emb.inv_freq", "model.norm.weight");
  PretrainedWeights weights(scratch.path(), kLlamaNames, norm);
  EXPECT_EQ(whole(weights, norm[0]), std::vector<float>{0});
  write("model.norm.weight", "model.layers.0.self_attn.rotary_emb.inv_freq");
  std::string message = user_error([&] { PretrainedWeights(scratch.path(), kLlamaNames, norm); });
  expect_contains(message, "' is U8 [4], the model needs f32, bf16 or f16 [1]");
}

TEST(PretrainedWeights, LeaveOutBuffersAndThePrefixOfABareModel) {
  ScratchDirectory scratch;
  WeightFile bare;
  bare.add("embed_tokens.weight", {11, 6});
  bare.add("layers.0.mlp.gate_proj.weight", {4, 6});
  bare.add("norm.weight", {6});
  bare.add("layers.0.self_attn.rotary_emb.inv_freq", {8});
  bare.write(scratch / "model.safetensors");
  PretrainedWeights weights(scratch.path(), kLlamaNames, tiny_llama(/*tied=*/true));
  std::vector<float> norm(6);
  weights.read("model.norm.weight", 0, norm);
  EXPECT_EQ(norm[3], WeightFile::value("norm.weight", 3));
}

TEST(PretrainedWeights, FindsTheHeadUnderTheNameOfAModelInMemory) {
  ScratchDirectory scratch;
  FamilyNames names = kLlamaNames;
  names.head = "embed_out.weight";
  names.head_in_memory = "lm_head.weight";
  file_of(tiny_llama()).write(scratch / "model.safetensors");
  std::vector<FileTensor> tensors = tiny_llama();
  for (FileTensor& tensor : tensors)
    if (tensor.name == "lm_head.weight") tensor.name = "embed_out.weight";
  PretrainedWeights weights(scratch.path(), names, tensors);
  std::vector<float> head(6);
  weights.read("embed_out.weight", 6, head);
  EXPECT_EQ(head[3], WeightFile::value("lm_head.weight", 9));
}

TEST(PretrainedWeights, ATiedHeadMayBeThereIfItIsTheEmbedding) {
  ScratchDirectory scratch;
  WeightFile equal = file_of(tiny_llama(/*tied=*/true));
  equal.add("lm_head.weight", {11, 6}, DType::kF32, "model.embed_tokens.weight");
  equal.write(scratch / "model.safetensors");
  PretrainedWeights weights(scratch.path(), kLlamaNames, tiny_llama(/*tied=*/true));
  std::string message = misfit(file_of(tiny_llama()), /*tied=*/true);
  expect_contains(message, "tensor 'lm_head.weight' in '");
  expect_contains(message, "differs from the embedding");
  expect_contains(message, "\"tie_word_embeddings\": false");
}

}  // namespace
}  // namespace tessera
