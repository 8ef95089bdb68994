// `tessera export` and training from what it wrote, as users run them, on one process and on ranks.
#include "checkpoint/safetensors.h"
#include "tests/apps/program_fixture.h"
#include "tests/tokenizer/tiktoken_file.h"

namespace tessera {
namespace {

class Export : public ProgramTest {
 protected:
  static Words ranks(int count, const Words& words) {
    return Words{"run", "--standalone", "--nproc_per_node", cat(count)} + words;
  }
  static Words quick(const Words& more) {
    return train({"--threads", "1", "--peak_tflops_per_gpu", "1", "--train_batch_size", "1",
                  "--run_validation", "0", "--comm_timeout", "60"}) +
           more;
  }
  std::string weights(const std::string& directory) const {
    return read_file(path(directory + "/model.safetensors"));
  }
};

TEST_F(Export, WritesADirectoryThatTrainingStartsFrom) {
  ok(quick({"--max_steps", "3", "--checkpoint_dir", "ckpt", "--save_final_model", "1"}));
  ok({"export", "ckpt", "model"});
  EXPECT_EQ(names("model"),
            (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                   "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(weights("model"), weights("ckpt/model"));
  ProgramResult tuned = ok({"train", "--hf_model", "model", "--dataset", "text.txt",
                            "--max_context_width", "16", "--max_steps", "2", "--threads", "1"});
  expect_contains(tuned.err, "tokenizer: that of model");
  expect_contains(tuned.err, "Loading weights from model");
  auto config = nlohmann::json::parse(read_file(path("model/config.json")));
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_EQ(config["eos_token_id"], 256);
}

// The default tokenizer, which is on a server, is not that of ids: nothing is fetched, nor written.
TEST_F(Export, AModelOfIdsHasNoTokenizerUnlessOneIsNamed) {
  Words on_ids;
  for (std::string_view word :
       split("train --model_type llama_v2 --hidden_width 16 --num_layers 1 --num_heads 2 "
             "--llama_intermediate_size 32 --max_context_width 8 --vocab_size 300 "
             "--use_synthetic_data 1 --train_batch_size 1 --max_steps 1 --threads 1 "
             "--save_final_model 1 --checkpoint_dir",
             ' '))
    on_ids.emplace_back(word);
  const std::set<std::string> weights_alone{"config.json", "model.safetensors"};
  expect_contains(ok(on_ids + Words{"ckpt"}).err, ", without a tokenizer");
  EXPECT_EQ(names("ckpt/model"), weights_alone);
  auto config = nlohmann::json::parse(read_file(path("ckpt/model/config.json")));
  EXPECT_TRUE(config.at("eos_token_id").is_null());
  ok({"export", "ckpt", "model"});
  EXPECT_EQ(names("model"), weights_alone);
  ok({"export", "ckpt", "bytes", "--tokenizer", "byte"});
  EXPECT_TRUE(names("bytes").contains("tokenizer.json"));
  ok({"export", "ckpt", "none", "--tokenizer", "None"});
  EXPECT_EQ(names("none"), weights_alone);
  expect_contains(run({"export", "ckpt", "m.gguf", "--format", "gguf"}).message(),
                  "give --tokenizer");

  ok(on_ids + Words{"named", "--tokenizer", "byte"});
  EXPECT_TRUE(names("named/model").contains("tokenizer.json"));
  ok(on_ids + Words{"unnamed", "--tokenizer", "None"});
  EXPECT_EQ(names("unnamed/model"), weights_alone);
  expect_contains(run(on_ids + Words{"wrong", "--tokenizer", "nosuch.json"}).message(),
                  "'nosuch.json'");
  // What was written is trained on.
  write("ids.bin", std::string(4000, '\0'));
  ok({"train", "--hf_model", "model", "--dataset", "ids.bin", "--max_context_width", "8",
      "--max_steps", "1", "--threads", "1"});
}

// Nor are those of whatever lies in the current directory.
TEST_F(Export, TheIdsOfTheByteTokenizerAreItsOwn) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  write("config.json", R"({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})");
  ok({"export", "ckpt", "model"});
  auto config = nlohmann::json::parse(read_file(path("model/config.json")));
  EXPECT_EQ(config["eos_token_id"], 256);
  EXPECT_FALSE(config.contains("pad_token_id"));
}

// transformers stops the gradient of the padding in config.json: it is the model's or none. Nor is
// there a begin of texts where the tokenizer has none.
TEST_F(Export, TokensThatTheModelDidNotNameAreNotInvented) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt", "--save_final_model", "1"}));
  write("ckpt/model/generation_config.json",
        R"({"bos_token_id": 0, "eos_token_id": 256, "pad_token_id": 256})");
  write("ckpt/model/tokenizer_config.json", R"({"bos_token": null, "eos_token": "<|endoftext|>"})");
  ok({"export", "ckpt", "model", "--tokenizer", "ckpt/model"});
  auto read = [&](const char* file) {
    return nlohmann::json::parse(read_file(path(cat("model/", file))));
  };
  EXPECT_FALSE(read("config.json").contains("pad_token_id"));
  EXPECT_EQ(read("config.json")["bos_token_id"], 0);
  EXPECT_EQ(read("generation_config.json")["pad_token_id"], 256);
  EXPECT_TRUE(read("tokenizer_config.json")["bos_token"].is_null());
}

// What a killed one left beside it is removed, and what is replaced is whole at every moment.
TEST_F(Export, TakesTheWholePlaceOfTheOneBefore) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model"});
  make_directories(path("model.replaced-999999999"));
  write("model.replaced-999999999/config.json", "{}");
  write("model/tokenizer.model", "old");
  ok({"export", "ckpt", "model"});
  EXPECT_FALSE(names("model").contains("tokenizer.model"));
  EXPECT_FALSE(std::filesystem::exists(path("model.replaced-999999999")));
}

TEST_F(Export, AFileOfWeightsIsNoModel) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model"});
  write("model/other.safetensors", weights("model"));
  const Words rest{"--dataset",   "text.txt", "--max_context_width", "16",
                   "--max_steps", "1",        "--threads",           "1"};
  for (const Words& words : {Words{"generate", "model/other.safetensors"},
                             Words{"train", "--hf_model", "model/other.safetensors"} + rest}) {
    ProgramResult refused = run(words);
    EXPECT_EQ(refused.status, 1);
    expect_contains(refused.message(), "'model/other.safetensors' is a file, and a model is a dir");
  }
  ok({"generate", "model/config.json", "--prompt", "a", "--max_new_tokens", "2"});
  ok(Words{"train", "--hf_model", "model/config.json"} + rest);
}

TEST_F(Export, TextForPretrainedWeightsNeedsATokenizer) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model"});
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::remove(path("model") / file);
  const Words rest{"--max_context_width", "16", "--max_steps", "1", "--threads", "1"};
  for (const Words& source : {Words{"--hf_model", "model"},
                              Words{"--finetune", "1", "--pretrained_checkpoint_file", "model"}}) {
    ProgramResult tuned = run(Words{"train", "--dataset", "text.txt"} + source + rest);
    EXPECT_EQ(tuned.status, 1);
    expect_contains(tuned.message(), "no tokenizer with the pretrained weights of 'model'");
    ok(Words{"train", "--dataset", "text.txt", "--tokenizer", "byte"} + source + rest);
  }
  write("ids.bin", std::string(4000, '\0'));
  ok(Words{"train", "--dataset", "ids.bin", "--hf_model", "model"} + rest);
  // There a tokenizer would not help.
  ProgramResult nowhere =
      run(Words{"train", "--dataset", "text.txt", "--hf_model", "qwen3_0.6b", "--hf_home", "none"} +
          rest);
  EXPECT_EQ(nowhere.status, 1);
  expect_contains(nowhere.message(), "--hf_pretrained_model_name_or_dir qwen3_0.6b is neither");
  expect_contains(nowhere.message(), "give hf://qwen3_0.6b");
  ProgramResult gone = run({"train", "--dataset", "text.txt", "--finetune", "1",
                            "--pretrained_checkpoint_file", "nothere"});
  EXPECT_EQ(gone.status, 1);
  expect_contains(gone.message(), "--pretrained_checkpoint_file: there is no file or directory");
  gone = run({"train", "--dataset", "text.txt", "--finetune", "1", "--pretrained_model_name",
              "gpt2", "--finetune_checkpoint_load_dir", "nothere"});
  EXPECT_EQ(gone.status, 1);
  expect_contains(gone.message(), "--finetune_checkpoint_load_dir: there is no file or directory");
}

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/goldens" / name;
}

// Training from one model as several programs keep it.
class SameModel : public Export {
 protected:
  SameModel() {
    std::string ids;
    for (int i = 0; i < 2000; ++i) ids += {static_cast<char>(i * i % 100), '\0'};
    write("ids.bin", ids);
  }
  Words trained(const std::string& from) {
    ProgramResult result =
        ok({"train", "--hf_model", from, "--dataset", "ids.bin", "--max_context_width", "16",
            "--max_steps", "2", "--threads", "1", "--bf16", "0", "--save_ckpt", "0",
            "--metrics_file", from + ".jsonl", "--peak_tflops_per_gpu", "1"});
    expect_contains(result.err, "Loading weights from " + from);
    return losses(from + ".jsonl");
  }
};

TEST_F(SameModel, InFilesOfTorchSave) {
  fs::copy(golden("torch_files/qwen2_window_tiny"), path("torch"));
  fs::create_directory(path("safe"));
  for (const char* to : {"torch", "safe"})
    fs::copy(golden("qwen2_window_tiny/config.json"), path(to) / "config.json");
  fs::copy(golden("qwen2_window_tiny/model.safetensors"), path("safe") / "model.safetensors");
  const Words losses_of_torch = trained("torch");
  EXPECT_EQ(losses_of_torch.size(), 2u);
  EXPECT_EQ(losses_of_torch, trained("safe"));
}

// In two parts, with a params.json, and as transformers' files, one token fewer than the golden.
TEST_F(SameModel, InMetasOwnFiles) {
  fs::copy(golden("torch_files/consolidated_columns"), path("meta"));
  fs::create_directory(path("safe"));
  write("safe/config.json",
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
            "intermediate_size": 56, "num_attention_heads": 4, "num_hidden_layers": 2,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "vocab_size": 100,
            "max_position_embeddings": 4096})");
  SafetensorsFile weights(golden("ministral_tiny/model.safetensors"));
  std::vector<TensorView> views;
  for (const TensorInfo& tensor : weights.tensors()) {
    Shape shape = tensor.shape;
    if (shape[0] == 101) shape[0] = 100;
    views.push_back({tensor.name, tensor.dtype, shape, weights.bytes(tensor).data()});
  }
  write_safetensors(path("safe/model.safetensors"), views);
  const Words losses_of_meta = trained("meta");
  EXPECT_EQ(losses_of_meta.size(), 2u);
  EXPECT_EQ(losses_of_meta, trained("safe"));
}

// Of the kind of GPT-2's file, filled up with tokens that the text does not hold.
TEST_F(Export, WritesRanksAsATokenizerJson) {
  std::vector<std::string> tokens = tokens_with({"th", "he", "the", " t", " the", "qu"});
  for (size_t i = tokens.size(); i < 50256; ++i) tokens.push_back(cat("\xff", i));
  write("own.tiktoken", tiktoken_file(tokens));
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt", "--tokenizer", "own.tiktoken",
            "--vocab_size", "50257"}));
  ok({"export", "ckpt", "model"});
  EXPECT_TRUE(exists("model/tokenizer.json"));
  auto ids = [&](const std::string& tokenizer) {
    return ok({"tokenizer", "encode", "--tokenizer", tokenizer, "text.txt"}).out;
  };
  EXPECT_EQ(ids("model"), ids("own.tiktoken"));
}

// Transformers reads the .model otherwise: a tokenizer.json stands beside it.
TEST_F(Export, WritesATokenizerJsonForASentencePieceModel) {
  const std::filesystem::path goldens = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/sentencepiece";
  std::filesystem::create_directory(path("own"));
  write("own/spiece.model", read_file(goldens / "unigram.model"));
  write("own/tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "legacy": true, "add_bos_token": false,
            "unk_token": "<unk>", "model_max_length": 77})");
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt", "--tokenizer", "own", "--vocab_size",
            "400"}));
  ok({"export", "ckpt", "model"});
  auto written = nlohmann::json::parse(read_file(path("model/tokenizer.json")));
  EXPECT_EQ(written, nlohmann::json::parse(read_file(goldens / "exported/unigram.json")));
  EXPECT_EQ(read_file(path("model/tokenizer.model")), read_file(path("own/spiece.model")));
  auto config = nlohmann::json::parse(read_file(path("model/tokenizer_config.json")));
  EXPECT_EQ(config, nlohmann::json::parse(R"({"tokenizer_class": "PreTrainedTokenizerFast",
      "model_max_length": 77, "bos_token": "<s>", "eos_token": "</s>"})"));
  auto ids = [&](const std::string& tokenizer) {
    return ok({"tokenizer", "encode", "--tokenizer", tokenizer, "text.txt"}).out;
  };
  EXPECT_EQ(ids("model"), ids("own"));
}

// Programs that talk to the model write as it was trained, and stop where its answers end.
TEST_F(Export, TakesTheChatTemplateAlong) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "first"}));
  ok({"export", "first", "own"});
  auto tokenizer = nlohmann::json::parse(read_file(path("own/tokenizer.json")));
  auto end = tokenizer["added_tokens"][0];
  end["content"] = "<|im_end|>";
  end["id"] = 257;
  tokenizer["added_tokens"].push_back(end);
  write("own/tokenizer.json", tokenizer.dump());
  // As transformers writes a length without bound; a template that is not known.
  write("own/tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  write("own/chat_template.jinja", "{{ messages | unheard_of }}");
  write("own/generation_config.json", R"({"eos_token_id": 256, "top_p": 0.5})");
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}, )"
                      R"({"role": "assistant", "content": "Me."}]})"
                      "\n");
  Words tuned{"train", "--dataset",          "chat.jsonl", "--max_steps",
              "1",     "--threads",          "1",          "--checkpoint_dir",
              "ckpt",  "--save_final_model", "1",          "--run_validation",
              "0"};
  for (std::string_view word :
       split("--model_type llama_v2 --hidden_width 16 --num_layers 1 --num_heads 2 "
             "--llama_intermediate_size 32 --max_context_width 16 --vocab_size 258 "
             "--train_batch_size 1",
             ' '))
    tuned.emplace_back(word);
  expect_contains(run(tuned + Words{"--tokenizer", "own"}).message(), "'unheard_of'");
  ok(tuned + Words{"--tokenizer", "own", "--chat_template", "chatml"});
  ok({"export", "ckpt", "model"});
  for (const char* model : {"ckpt/model", "model"}) {
    auto json = [&](const char* name) {
      return nlohmann::json::parse(read_file(path(model) / name));
    };
    expect_contains(json("tokenizer_config.json")["chat_template"].get<std::string>(),
                    "'<|im_start|>'");
    EXPECT_EQ(json("config.json")["eos_token_id"], nlohmann::json({256, 257}));
    EXPECT_EQ(json("generation_config.json"),
              nlohmann::json({{"eos_token_id", {256, 257}}, {"top_p", 0.5}}));
    EXPECT_FALSE(exists(std::string(model) + "/chat_template.jinja"));
  }
  const Words again{"--tokenizer", "model", "--checkpoint_dir", "again"};
  ok(tuned + again);  // knows the template
  ok({"export", "ckpt", "other", "--chat_template", "zephyr"});
  expect_contains(read_file(path("other/tokenizer_config.json")), "<|assistant|>");
  ok({"export", "ckpt", "model.gguf", "--format", "gguf"});
  const std::string gguf = read_file(path("model.gguf"));
  expect_contains(gguf, "tokenizer.ggml.eot_token_id");
  expect_contains(gguf, "'<|im_start|>'");
  expect_contains(run({"export", "ckpt", "bad", "--chat_template", "nosuch"}).message(),
                  "there is no chat template 'nosuch'");
  EXPECT_FALSE(exists("bad"));
}

TEST_F(Export, ShardsAndHalvesOnRequest) {
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model", "--dtype", "bf16", "--max_shard_size", "20KB"});
  auto config = nlohmann::json::parse(read_file(path("model/config.json")));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  auto index = nlohmann::json::parse(read_file(path("model/model.safetensors.index.json")));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) shards.insert(file);
  EXPECT_GE(shards.size(), 3u);
  for (const std::string& file : shards)
    EXPECT_LT(std::filesystem::file_size(path("model/" + file)), 22'000u) << file;
  ok({"export", "ckpt", "model", "--dtype", "f16"});
  EXPECT_FALSE(exists("model/model.safetensors.index.json")) << "the older one is gone";
  EXPECT_EQ(SafetensorsFile(path("model/model.safetensors")).tensors()[0].dtype, DType::kF16);
}

// From another directory, of a checkpoint that was moved, with the tokenizer's file gone.
TEST_F(Export, ACheckpointBringsItsTokenizer) {
  ok({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "257", "--output", "tok.json"});
  Words job = quick({"--max_steps", "2", "--checkpoint_dir", "ckpt", "--tokenizer", "tok.json"});
  ok(job);
  const Words say{"--prompt", "the", "--max_new_tokens", "4", "--temperature", "0"};
  std::string text = ok(Words{"generate", "ckpt"} + say).out;
  std::filesystem::create_directories(path("far/away"));
  std::filesystem::rename(path("ckpt"), path("far/ckpt"));
  std::filesystem::remove(path("tok.json"));
  auto elsewhere = [&] { return ::chdir("far/away"); };
  auto there = [&](const Words& words) {
    ProgramResult result = run(words, [&] { ASSERT_EQ(elsewhere(), 0); });
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  };
  EXPECT_EQ(there(Words{"generate", "../ckpt"} + say).out, text);
  there({"export", "../ckpt", "model"});
  EXPECT_EQ(names("far/away/model").count("tokenizer.json"), 1u);
  ProgramResult more = ok(quick({"--max_steps", "3", "--checkpoint_dir", "far/ckpt", "--tokenizer",
                                 "tok.json", "--resume_from_checkpoint", "far/ckpt"}));
  expect_contains(more.err, "that of the checkpoint is taken");
}

struct ExportedLayout {
  std::string name;
  int ranks;
  Words options;
};

class ExportedLayouts : public Export, public testing::WithParamInterface<ExportedLayout> {};
INSTANTIATE_TEST_SUITE_P(
    Each, ExportedLayouts,
    testing::Values(ExportedLayout{"FullShard", 2, {}},
                    ExportedLayout{"Copies", 2, {"--sharding_strategy", "no_shard"}},
                    ExportedLayout{"HybridShard",
                                   4,
                                   {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}},
                    ExportedLayout{"ShardsOfTensorParallel", 4, {"--tensor_parallel_degree", "2"}},
                    ExportedLayout{"Frozen", 2, {"--freeze", "*embed*,*.1.*"}},
                    ExportedLayout{"SharedHeads", 4, {"--tensor_parallel_degree", "4"}},
                    ExportedLayout{"Gpt2",
                                   4,
                                   {"--model_type", "gpt2", "--num_key_value_heads", "4",
                                    "--tensor_parallel_degree", "2"}}),
    [](const auto& test) { return test.param.name; });

// Out of the pieces of ranks, into one process, and back into ranks: always the same bytes.
TEST_P(ExportedLayouts, KeepEveryBit) {
  auto [name, count, options] = GetParam();
  ok(ranks(count, quick({"--max_steps", "3", "--checkpoint_dir", "ckpt"}) + options));
  ok({"export", "ckpt", "model"});
  Words still{"--hf_model", "model", "--max_steps", "0", "--save_final_model", "1"};
  ok(quick(still + Words{"--model_dir", "alone"}));
  EXPECT_EQ(weights("alone"), weights("model"));
  ok(ranks(count, quick(still + Words{"--model_dir", "together"}) + options));
  EXPECT_EQ(weights("together"), weights("model"));
  EXPECT_FALSE(exists("together.pieces"));
}

TEST_F(Export, WhatStandsBesideTheModelStays) {
  for (const char* mine : {"model.tokenizer", "model.pieces"}) {
    make_directories(path(mine));
    write(cat(mine, "/notes.txt"), "x");
  }
  for (int count : {1, 2})
    ok(ranks(count,
             quick({"--max_steps", "1", "--save_final_model", "1", "--model_dir", "model"})));
  for (const char* mine : {"model.tokenizer", "model.pieces"})
    EXPECT_EQ(names(mine), std::set<std::string>{"notes.txt"});
}

TEST_F(Export, SaysWhatIsWrong) {
  auto fails = [&](const Words& words, const std::string& reason) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.status, words.size() < 3 ? 2 : 1) << result.err;
    expect_contains(result.message(), reason);
  };
  fails({"export", "ckpt"}, "tessera export MODEL DIR");
  for (const Words& format : {Words{}, Words{"--format", "gguf"}}) {
    ProgramResult elsewhere = run(Words{"export", "ckpt", "s3://bucket/model"} + format);
    EXPECT_EQ(elsewhere.status, 2);
    expect_contains(elsewhere.message(), "'s3://bucket/model' is not of this machine");
  }
  fails({"export", "ckpt", "model"}, "there is no complete checkpoint in 'ckpt'");
  ok(quick({"--max_steps", "1", "--checkpoint_dir", "ckpt"}));
  make_directories(path("mine"));
  write("mine/notes.txt", "x");
  fails({"export", "ckpt", "mine"}, "'notes.txt' in it was not written by tessera");
  fails({"export", "ckpt", "model", "--tokenizer", "gone"}, "tokenizer 'gone'");
  EXPECT_FALSE(exists("model"));
  fails({"export", "text.txt", "model"}, "is a file");
  fails({"export", "ckpt", "."}, "is the current directory");
  // Adapters over the model that they are of.
  ok({"export", "ckpt", "base"});
  Words adapted{"train", "--hf_model",  "base", "--dataset", "text.txt", "--max_context_width",
                "16",    "--max_steps", "1",    "--threads", "1",        "--lora_rank",
                "2"};
  fails(adapted + Words{"--checkpoint_dir", "x", "--save_final_model", "1", "--model_dir", "base"},
        "'base' holds a whole model, which adapters do not replace");
  ok(adapted + Words{"--checkpoint_dir", "lora"});
  fails({"export", "lora", "base"}, "holds a whole model");
  EXPECT_FALSE(weights("base").empty());
  fails({"train", "--hf_model", "ckpt/llama_v2-1steps", "--dataset", "text.txt"},
        "is a checkpoint of tessera: `tessera export ckpt/llama_v2-1steps DIR`");
  fails({"train", "--hf_model", "ckpt", "--dataset", "text.txt"},
        "'ckpt' is a directory of checkpoints of tessera");
  fails({"export", "lora", "chat", "--chat_template", "chatml"}, "give --merge_adapter 1");
  ok({"export", "lora", "adapter"});
  fails({"train", "--hf_model", "adapter", "--dataset", "text.txt"},
        "'adapter' is an adapter: give the model that it was made for");
}

}  // namespace
}  // namespace tessera
