// Checkpoints of PyTorch become tessera's, and those PyTorch's again.
#include "weights/checkpoint_conversion.h"

#include <gtest/gtest.h>

#include "base/interruption.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verification.h"
#include "tests/base/ended_process.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/weights/torch_state_fixture.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<float> all_of(const SavedTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
  tensor.read(whole_box(tensor.shape), std::as_writable_bytes(std::span(values)));
  return values;
}

class CheckpointConversion : public testing::TestWithParam<ModelType> {
 protected:
  CheckpointConversion() {
    const ModelConfig model = tiny_model(GetParam(), GetParam() == ModelType::kGpt2);
    TorchStateForm form;
    form.place = [model](const Parameter& p, int64_t e) {
      return hugging_face_tensor(model.model_type, p).transposed ? transposed_place(p, e) : e;
    };
    make_directories(from());
    write_torch_state(from(), model, form, [&](TorchStateWriter& w) {
      w.item("optim.param_groups.0.lr", 2e-4);
      w.item("optim.param_groups.0.initial_lr", 3e-4);
      w.item("optim.param_groups.0.weight_decay", 0.1);
      w.item("optim.param_groups.0.eps", 1e-6);
      w.item("train_state.ntokens_seen", 4711);
      w.item("rng.cpu", 1);
      if (model.tie_word_embeddings) {
        w.tensor("model.lm_head.weight", {model.vocab_size, model.hidden_width},
                 [](int64_t e) { return state_value(0, "weight", e); });
      }
    });
    job_ = {from(), directory_ / "ckpt", model, RunConfig(), "byte", 24};
  }
  fs::path from() const { return directory_ / "torch"; }

  ScratchDirectory directory_;
  FromTorch job_;
};

TEST_P(CheckpointConversion, KeepsEveryElementThereAndBack) {
  int64_t written = 0, total = 0;
  job_.progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, written);
    written = done;
    total = all;
  };
  const ConvertedCheckpoint made = convert_from_torch(job_);
  EXPECT_EQ(written, total);
  EXPECT_EQ(made.path, job_.to / cat(name(GetParam()), "-7steps"));
  EXPECT_EQ(made.left_out, std::vector<std::string>{"rng.cpu"});
  EXPECT_EQ(join(made.options, " "), "--lr 3e-04 --weight_decay 0.1 --decay_all 1");
  ASSERT_EQ(made.warnings.size(), 2u);
  expect_contains(made.warnings[0], "the rate of the next step was 2e-04");
  expect_contains(made.warnings[1], "its eps is 1e-06");

  EXPECT_TRUE(verify_checkpoint(made.path).damages.empty());
  const auto reader = open_checkpoint(made.path);
  const RunRecord record = record_of(*reader);
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.position, 24);
  EXPECT_EQ(tokenizer_of(made.path, record), "byte");
  EXPECT_EQ(record.tokens_seen, 4711);
  EXPECT_EQ(record.converted_from, from().string());
  EXPECT_EQ(record.options.lr, 3e-4);
  EXPECT_TRUE(record.options.decay_all);
  EXPECT_EQ(model_difference(record.model, job_.model), "");
  const std::vector<Parameter> parameters = parameters_of(job_.model);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ManifestTensor* tensor = reader->find(parameters[i].name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, parameters[i].shape);
    reader->read(*tensor, whole_box(tensor->shape), [&](int64_t e, auto content) {
      for (size_t k = 0; k < content.size(); k += sizeof(float), ++e) {
        float value;
        std::memcpy(&value, content.data() + k, sizeof value);
        ASSERT_EQ(value, state_value(i, "weight", e)) << parameters[i].name;
      }
    });
  }

  convert_to_torch(made.path, directory_ / "again");
  SavedState before(from()), after(directory_ / "again");
  for (const auto& [name, tensor] : before.tensors()) {
    ASSERT_TRUE(after.tensors().contains(name)) << name;
    EXPECT_EQ(after.tensors().at(name).shape, tensor.shape) << name;
    EXPECT_EQ(all_of(after.tensors().at(name)), all_of(tensor)) << name;
  }
  // PyTorch's model of a GPT-NeoX has its output matrix under another name than the files have.
  const bool neox = GetParam() == ModelType::kGptNeox;
  EXPECT_EQ(before.tensors().size() + (neox ? 4 : 0), after.tensors().size());
  for (const std::string begin : {"model.", "optim.state."}) {
    const std::string end = begin == "model." ? "" : ".exp_avg";
    if (!neox) break;
    ASSERT_TRUE(after.tensors().contains(cat(begin, "lm_head.weight", end)));
    EXPECT_EQ(all_of(after.tensors().at(cat(begin, "lm_head.weight", end))),
              all_of(before.tensors().at(cat(begin, "embed_out.weight", end))));
  }
  job_.from = directory_ / "again";
  job_.to = directory_ / "third";
  job_.progress = {};
  EXPECT_EQ(convert_from_torch(job_).left_out, std::vector<std::string>());
  EXPECT_EQ(after.numbers("optim.param_groups.0.lr"), std::vector<double>{3e-4});
  EXPECT_EQ(after.numbers(cat("optim.param_groups.", parameters[0].name, ".betas")),
            (std::vector<double>{0.9, 0.95}));
  EXPECT_TRUE(fs::exists(directory_ / "again/config.json"));
}

// GPT-2's biases, which this model may lack and PyTorch's has.
TEST(ConvertToTorch, GivesPyTorchWhatItsModelHasBesides) {
  ScratchDirectory directory;
  ModelConfig bare = tiny_model(ModelType::kGpt2, true);
  bare.bias = false;
  TorchStateForm form;
  form.place = [](const Parameter& p, int64_t e) {
    return hugging_face_tensor(ModelType::kGpt2, p).transposed ? transposed_place(p, e) : e;
  };
  make_directories(directory / "torch");
  write_torch_state(directory / "torch", bare, form);
  const fs::path made =
      convert_from_torch({directory / "torch", directory / "ckpt", bare, RunConfig(), "byte"}).path;
  convert_to_torch(made, directory / "again");
  const ModelConfig whole = tiny_model(ModelType::kGpt2, true);
  TorchTrainingState state(directory / "again", whole, parameters_of(whole));
  EXPECT_EQ(state.find_optimizer().steps, 7);
  std::vector<float> bias(24, 1), moment(8, 1);
  state.read("transformer.h.1.attn.c_attn.bias", 0, bias);
  state.read_kept("exp_avg_sq", "transformer.h.0.ln_1.bias", 0, moment);
  EXPECT_EQ(bias, std::vector<float>(24, 0));
  EXPECT_EQ(moment, std::vector<float>(8, 0));
}

TEST_P(CheckpointConversion, LeavesNothingWhereItIsInterruptedOrFails) {
  job_.progress = [&](int64_t done, int64_t total) {
    if (done > total / 2) request_interruption();
  };
  message_of<Interrupted>([&] { convert_from_torch(job_); });
  clear_interruption();
  EXPECT_FALSE(fs::exists(job_.to));

  job_.progress = {};
  job_.model.num_layers = 5;
  user_error([&] { convert_from_torch(job_); });
  EXPECT_FALSE(fs::exists(job_.to));
  job_.model.num_layers = 2;
  const fs::path made = convert_from_torch(job_).path;
  expect_contains(user_error([&] { convert_from_torch(job_); }), "is there and not empty");

  const fs::path before = fs::current_path();
  fs::create_directories(directory_ / "here");
  fs::current_path(directory_ / "here");
  expect_contains(user_error([&] { convert_to_torch(made, fs::current_path()); }),
                  "is the current directory, in whose place no finished one can be moved");
  fs::current_path(before);
  fs::remove(directory_ / "here");

  const fs::path to = directory_ / "again";
  message_of<Interrupted>(
      [&] { convert_to_torch(made, to, [](int64_t, int64_t) { request_interruption(); }); });
  clear_interruption();
  std::string content = read_file(made / "state.safetensors");
  content.back() = static_cast<char>(content.back() ^ 1);
  write_file_atomic(made / "state.safetensors", content);
  expect_contains(message_of<DamagedCheckpoint>([&] { convert_to_torch(made, to); }), "hash");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 2);
}

TEST_P(CheckpointConversion, RemovesWhatWasKilledBefore) {
  const fs::path left = job_.to / cat("gpt2-3steps.tmp-", ended_process());
  fs::create_directories(left);
  write_file_atomic(left / "state.safetensors", "half");
  const fs::path made = convert_from_torch(job_).path;
  EXPECT_FALSE(fs::exists(left));
  const fs::path to = directory_ / "again", half = to.string() + ".tmp-" + ended_process();
  fs::create_directories(half);
  write_file_atomic(half / "__0_0.distcp", "half");
  convert_to_torch(made, to);
  EXPECT_FALSE(fs::exists(half));
}

INSTANTIATE_TEST_SUITE_P(Families, CheckpointConversion,
                         testing::Values(ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox,
                                         ModelType::kQwen2));

// Of an option that is given twice the last one counts.
TEST(FrozenParameters, AreOneOptionOfTheRunThatGoesOn) {
  ScratchDirectory directory;
  const ModelConfig model = tiny_model(ModelType::kLlamaV2);
  TorchStateForm form;
  form.trained = [](const std::string& name) {
    return name != "model.embed_tokens.weight" && name != "model.norm.weight";
  };
  make_directories(directory / "torch");
  write_torch_state(directory / "torch", model, form);
  const ConvertedCheckpoint made = convert_from_torch(
      {directory / "torch", directory / "ckpt", model, RunConfig(), "byte", 0, {}});
  std::vector<std::string> freezing;
  for (const std::string& option : made.options)
    if (option.starts_with("--freeze")) freezing.push_back(option);
  EXPECT_EQ(freezing,
            std::vector<std::string>{"--freeze 'model.embed_tokens.weight,model.norm.weight'"});
}

TEST(RefuseTorchCheckpoint, SaysWhichCommandConvertsIt) {
  ScratchDirectory directory;
  refuse_torch_checkpoint(directory.path());
  auto refused = [&] { return user_error([&] { refuse_torch_checkpoint(directory.path()); }); };
  // As programs lay them out.
  for (const std::string file :
       {"gpt2/cuda/rank_0-world_2.pt", "checkpoints/step_8_ckp/.metadata", "step_9_ckp.pth"}) {
    fs::create_directories((directory / file).parent_path());
    if (file.ends_with("ckp.pth"))
      fs::copy_file(fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/torch_files/plain.pt",
                    directory / file);
    else
      directory.write(file, "");
    const fs::path checkpoint =
        file == "step_9_ckp.pth" ? directory / file : (directory / file).parent_path();
    expect_contains(refused(), cat("`tessera checkpoint convert ", checkpoint.string(), " DIR`"));
    fs::remove_all(directory / file);
  }
  // A damaged one is not to be converted.
  const std::string whole =
      read_file(fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/torch_files/plain.pt");
  directory.write("12.pt", whole.substr(0, whole.size() / 2));
  expect_contains(refused(), "12.pt' cannot be read as a zip archive: its end is missing");
  expect_contains(refused(), "move it away");
  EXPECT_EQ(refused().find("checkpoint convert"), std::string::npos);
  fs::remove(directory / "12.pt");
  // Weights alone are none.
  directory.write("model-7b.pt", "");
  refuse_torch_checkpoint(directory.path());
  fs::create_directory(directory / "llama_v2-20steps");
  directory.write("llama_v2-20steps/.metadata", "");
  expect_contains(refused(),
                  cat("`tessera checkpoint convert ", (directory / "llama_v2-20steps").string()));
}

}  // namespace
}  // namespace tessera
