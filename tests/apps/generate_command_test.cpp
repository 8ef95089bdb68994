// `tessera generate` as a user meets it, on a tiny model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

using GenerateCommand = ProgramTest;

TEST_F(GenerateCommand, ContinuesAText) {
  ASSERT_EQ(run(train({"--max_steps", "60", "--lr_decay_iters", "60", "--checkpoint_dir", "ckpt"}))
                .status,
            0);
  auto generate = [&](const Words& more) {
    ProgramResult result =
        run(Words{"generate", "ckpt", "--prompt", "the quick", "--max_new_tokens", "40"} + more);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find("the quick"), 0u);
    EXPECT_EQ(result.out.back(), '\n');
    return result.out;
  };
  std::string sampled = generate({});
  EXPECT_EQ(sampled, generate({}));
  EXPECT_EQ(sampled, generate({"--threads", "1"}));
  EXPECT_NE(sampled, generate({"--seed", "8"}));
  std::string likeliest = generate({"--temperature", "0"});
  EXPECT_EQ(likeliest, generate({"--temperature", "0", "--seed", "8"}));
  EXPECT_EQ(likeliest, generate({"--top_k", "1"}));
  EXPECT_EQ(
      run({"generate", "ckpt/llama_v2-60steps", "--prompt", "a", "--max_new_tokens", "0"}).out,
      "a\n");
  EXPECT_EQ(likeliest, generate({"--top_p", "0"}));
  EXPECT_NE(sampled, generate({"--top_p", "0.5", "--temperature", "1.5"}));
  expect_contains(run({"generate", "ckpt", "--prompt", "a", "--max_new_tokens", "3"}).err,
                  "Prompt: 2 tokens in ");

  // The text ends before the first of the stop texts; the prompt may come from a file.
  size_t end = std::string("the quick").size();
  while (!std::isalpha(likeliest.at(end)) || !std::isalpha(likeliest.at(end + 1))) ++end;
  std::string stop = likeliest.substr(end, 2);
  EXPECT_EQ(generate({"--temperature", "0", "--stop", "never", stop}),
            likeliest.substr(0, end) + "\n");
  EXPECT_EQ(generate({"--temperature", "0", "--stop", "\\\\"}), likeliest);
  write("prompt.txt", "the quick");
  EXPECT_EQ(run({"generate", "ckpt", "--prompt_file", "prompt.txt", "--temperature", "0",
                 "--max_new_tokens", "40"})
                .out,
            likeliest);
  ProgramResult from_input = run(
      {"generate", "ckpt", "--prompt_file", "-", "--temperature", "0", "--max_new_tokens", "40"},
      [] { ::dup2(::open("prompt.txt", O_RDONLY), 0); });
  EXPECT_EQ(from_input.out, likeliest) << from_input.err;
  ProgramResult both = run({"generate", "ckpt", "--prompt", "a", "--prompt_file", "prompt.txt"});
  EXPECT_EQ(both.status, 2);
  expect_contains(both.message(), "--prompt and --prompt_file are two sources");

  // The same from a Hugging Face directory, where only what its tokenizer says begins a text.
  ASSERT_EQ(run({"export", "ckpt", "model"}).status, 0);
  EXPECT_EQ(run({"generate", "model", "--prompt", "<|endoftext|>the quick", "--temperature", "0",
                 "--max_new_tokens", "40"})
                .out,
            "<|endoftext|>" + likeliest);

  // A prompt longer than the context keeps its end.
  expect_contains(
      run({"generate", "ckpt", "--prompt", std::string(50, 'x'), "--max_new_tokens", "2"}).out,
      std::string(50, 'x'));

  ASSERT_EQ(run({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "280", "--output",
                 "large.json"})
                .status,
            0);
  ProgramResult misfit = run({"generate", "ckpt", "--tokenizer", "large.json"});
  EXPECT_EQ(misfit.status, 1);
  expect_contains(misfit.message(), "the tokenizer has 280 ids, the model's vocabulary only 257");
}

// Context, ends of a text and begin of a prompt are those of the model that it was made of.
TEST_F(GenerateCommand, ContinuesATunedModelAsItsExport) {
  ok(train({"--max_steps", "60", "--lr_decay_iters", "60", "--max_context_width", "64",
            "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model"});
  write("model/generation_config.json", R"({"eos_token_id": [256, 32]})");
  const std::string prompt = "the quick brown fox jumps over the lazy d";  // more than 16 tokens
  auto likeliest = [&](const std::string& model, const std::string& text) {
    return ok({"generate", model, "--prompt", text, "--temperature", "0", "--max_new_tokens", "20",
               "--bf16", "0"})
        .out;
  };
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += "{\"text\": \"the quick\"}\n";
  write("rows.jsonl", rows);
  for (const std::string packing : {"rows", "auto"}) {
    ok({"train", "--hf_model", "model", "--dataset", "rows.jsonl", "--max_context_width", "16",
        "--max_steps", "1", "--threads", "1", "--packing", packing, "--checkpoint_dir", packing});
    ok({"export", packing, packing + "-model"});
    const std::string end = packing == "rows" ? "" : "<|endoftext|>";
    const std::string text = likeliest(packing + "-model", end + prompt);
    EXPECT_EQ(end + likeliest(packing, prompt), text);
    EXPECT_EQ(text.find(' ', end.size() + prompt.size()), std::string::npos) << text;
  }
}

TEST_F(GenerateCommand, ContinuesAFileOfPrompts) {
  ASSERT_EQ(run(train({"--max_steps", "60", "--lr_decay_iters", "60", "--checkpoint_dir", "ckpt"}))
                .status,
            0);
  const Words prompts{"the quick", "birds sing of spring and", "x", "lazy dogs", "the quick"};
  std::string lines, objects;
  for (const std::string& prompt : prompts) {
    lines += prompt + "\n\n";
    objects += nlohmann::json{{"prompt", prompt}, {"id", 3}}.dump() + "\r\n";
  }
  write("prompts.txt", lines);
  write("prompts.jsonl", objects);
  auto completions = [&](const Words& more) {
    ProgramResult result = run(Words{"generate", "ckpt", "--max_new_tokens", "40"} + more);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<nlohmann::json> found;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  };
  // In order, and each what it is alone: with the likeliest tokens the text of --prompt.
  auto likeliest = completions({"--prompts_file", "prompts.txt", "--temperature", "0"});
  ASSERT_EQ(likeliest.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(likeliest[i]["prompt"], prompts[i]);
    EXPECT_EQ(run({"generate", "ckpt", "--prompt", prompts[i], "--temperature", "0",
                   "--max_new_tokens", "40"})
                  .out,
              prompts[i] + likeliest[i]["completion"].get<std::string>() + "\n");
    EXPECT_LE(likeliest[i]["tokens"], 40);
    EXPECT_TRUE(likeliest[i]["finish_reason"] == "length"
                    ? likeliest[i]["tokens"] == 40
                    : likeliest[i]["finish_reason"] == "stop");
  }
  auto sampled = completions({"--prompts_file", "prompts.jsonl"});
  for (const char* size : {"1", "2", "100"}) {
    EXPECT_EQ(completions({"--prompts_file", "prompts.txt", "--prompt_batch_size", size}), sampled);
  }
  EXPECT_NE(sampled[0]["completion"], sampled[4]["completion"]);
  EXPECT_EQ(run({"generate", "ckpt", "--prompt", prompts[0], "--max_new_tokens", "40"}).out,
            prompts[0] + sampled[0]["completion"].get<std::string>() + "\n");
  ProgramResult piped = run({"generate", "ckpt", "--max_new_tokens", "4", "--prompts_file", "-"},
                            [] { ::dup2(::open("prompts.jsonl", O_RDONLY), 0); });
  EXPECT_EQ(piped.status, 0) << piped.err;
  expect_contains(piped.err, "5 prompts, 5 at once: ");
  expect_contains(piped.out, R"({"prompt":"the quick","completion":")");
  for (const auto& each : completions({"--prompts_file", "prompts.txt", "--stop", "e", "t"}))
    EXPECT_EQ(each["completion"].get<std::string>().find_first_of("et"), std::string::npos);

  write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n");
  ProgramResult bad = run({"generate", "ckpt", "--prompts_file", "bad.jsonl"});
  EXPECT_EQ(bad.status, 1);
  expect_contains(bad.message(), "'bad.jsonl', line 2: \"prompt\" is not a string");
  EXPECT_EQ(bad.out, "");
  write("empty.txt", "\n");
  expect_contains(run({"generate", "ckpt", "--prompts_file", "empty.txt"}).message(),
                  "'empty.txt' holds no prompt");
  expect_contains(run({"generate", "ckpt", "--prompts_file", "none.txt"}).message(),
                  "cannot read 'none.txt'");
  ProgramResult both = run({"generate", "ckpt", "--prompt", "a", "--prompts_file", "prompts.txt"});
  EXPECT_EQ(both.status, 2);
  expect_contains(both.message(), "--prompt and --prompts_file are two sources");
  ProgramResult alone = run({"generate", "ckpt", "--prompt", "a", "--prompt_batch_size", "2"});
  EXPECT_EQ(alone.status, 2);
  expect_contains(alone.message(), "--prompt_batch_size counts texts of --prompts_file");

  // --memory makes the batch smaller, and refuses what does not fit at all.
  auto limited = [&](const std::string& memory) {
    return run({"generate", "ckpt", "--prompts_file", "prompts.txt", "--max_new_tokens", "9",
                "--memory", memory});
  };
  expect_contains(limited("1GiB").err, "5 prompts, 5 at once: ");
  // What one row needs: whole MiB, then the KiB beyond them.
  std::smatch found;
  std::string refusal = limited("1KiB").message();
  ASSERT_TRUE(std::regex_search(refusal, found, std::regex(R"(needs (\d+)\S* MiB, )"))) << refusal;
  const int mib = std::stoi(found[1]);
  const ProgramResult none = limited(cat(mib, "MiB"));
  EXPECT_EQ(none.status, 1);
  refusal = none.message();
  ASSERT_TRUE(std::regex_search(refusal, found, std::regex(R"(is (\d+)\S* KiB more than)")))
      << refusal;
  const int kib = 1024 * mib + std::stoi(found[1]) + 1;
  expect_contains(limited(cat(kib, "KiB")).err, "5 prompts, 1 at once: ");

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A batch that memory does not hold is refused where it was asked for.
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "the quick\n";
  write("many.txt", many);
  auto little = [] {
    rlimit limit{128 << 20, 128 << 20};
    ::setrlimit(RLIMIT_DATA, &limit);
  };
  ProgramResult large = run({"generate", "ckpt", "--prompts_file", "many.txt", "--max_new_tokens",
                             "1", "--prompt_batch_size", "1000000"},
                            little);
  EXPECT_EQ(large.status, 1);
  expect_contains(large.message(), "a smaller --prompt_batch_size or fewer --max_new_tokens");
#endif
}

// A run on one conversation, until it knows it by heart.
TEST_F(GenerateCommand, AnswersInTheChatTemplateOfItsRun) {
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}, )"
                      R"({"role": "assistant", "content": "Me."}]})"
                      "\n");
  auto trained = [&](const Words& more) {
    Words words{"train", "--dataset", "chat.jsonl", "--tokenizer", "byte", "--threads", "1"};
    for (std::string_view word :
         split("--model_type llama_v2 --hidden_width 32 --num_layers 1 --num_heads 2 "
               "--llama_intermediate_size 64 --max_context_width 96 --vocab_size 257 --lr 1e-2 "
               "--warmup 0 --train_batch_size 1 --epochs 80 --max_steps 80 --run_validation 0",
               ' '))
      words.emplace_back(word);
    ASSERT_EQ(run(words + more).status, 0);
  };
  trained({"--checkpoint_dir", "ckpt", "--chat_template", "chatml"});
  const Words ask{"generate", "ckpt", "--temperature", "0", "--max_new_tokens", "60"};
  const Words who{"--chat", "--prompt", "Who?"};
  EXPECT_EQ(run(ask + who).out, "Me.\n");
  EXPECT_EQ(
      run(ask + Words{"--prompt", "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"}).out,
      "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nMe.\n");
  write("questions.jsonl", "{\"prompt\": \"Who?\"}\n");
  expect_contains(run(ask + Words{"--chat", "--prompts_file", "questions.jsonl"}).out,
                  R"({"prompt":"Who?","completion":"Me.","tokens":)");
  ASSERT_EQ(run({"export", "ckpt", "model"}).status, 0);
  EXPECT_EQ(run(Words{"generate", "model", "--temperature", "0"} + who).out, "Me.\n");
  ASSERT_EQ(run({"export", "ckpt", "plain", "--chat_template", "plain"}).status, 0);
  EXPECT_NE(run(Words{"generate", "plain", "--temperature", "0"} + who).out, "Me.\n");

  ProgramResult alone = run(ask + Words{"--prompt", "a", "--chat_template", "zephyr"});
  EXPECT_EQ(alone.status, 2);
  expect_contains(alone.message(), "--chat_template says how --chat writes prompts");
  ProgramResult silent = run(ask + Words{"--chat"});
  EXPECT_EQ(silent.status, 2);
  expect_contains(silent.message(), "what the user says");
  ASSERT_EQ(run(train({"--max_steps", "1", "--checkpoint_dir", "text"})).status, 0);
  expect_contains(run(Words{"generate", "text"} + who).message(), "has no chat template");
}

// A tokenizer with a token that fills rows up behind those of its model, as published ones have it.
TEST_F(GenerateCommand, SpecialTokensBehindTheVocabularyAreNotTheModels) {
  std::filesystem::create_directory(path("plain"));
  std::filesystem::create_directory(path("padded"));
  ASSERT_EQ(run({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "280", "--output",
                 "plain/tokenizer.json"})
                .status,
            0);
  nlohmann::json tokenizer = nlohmann::json::parse(read_file(path("plain/tokenizer.json")));
  nlohmann::json padding = tokenizer["added_tokens"][0];
  padding["id"] = 280;
  padding["content"] = "<pad>";
  tokenizer["added_tokens"].push_back(padding);
  write("padded/tokenizer.json", tokenizer.dump());

  auto job = [&](const std::string& name, const Words& more) {
    return train(Words{"--tokenizer", name, "--vocab_size", "280", "--max_steps", "3"} + more);
  };
  ProgramResult plain = run(job("plain", {"--checkpoint_dir", "ckpt"}));
  ProgramResult padded = run(job("padded", {"--checkpoint_dir", "padded/ckpt"}));
  EXPECT_EQ(padded.status, 0) << padded.err;
  expect_contains(padded.err, "special tokens from '<pad>' on are none of the model's");
  EXPECT_TRUE(read_file(path("ckpt/llama_v2-3steps/state.safetensors")) ==
              read_file(path("padded/ckpt/llama_v2-3steps/state.safetensors")));
  // Data that were prepared, and a conversation in which the token stands as text.
  ASSERT_EQ(run({"data", "prepare", "--dataset", "text.txt", "--tokenizer", "padded",
                 "--output_dir", "tokens"})
                .status,
            0);
  EXPECT_EQ(run(job("padded", {"--dataset", "tokens"})).status, 0);
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "<pad>"}, )"
                      R"({"role": "assistant", "content": "Me."}]})"
                      "\n");
  ProgramResult chat = run(job("padded", {"--dataset", "chat.jsonl", "--chat_template", "plain"}));
  EXPECT_EQ(chat.status, 0) << chat.err;

  const Words from{"--tokenizer", "padded", "--max_new_tokens", "5", "--temperature", "0"};
  ProgramResult text = run(Words{"generate", "padded/ckpt", "--prompt", "the"} + from);
  EXPECT_EQ(text.out, run({"generate", "ckpt", "--prompt", "the", "--max_new_tokens", "5",
                           "--temperature", "0"})
                          .out)
      << text.err;
  ProgramResult named = run(Words{"generate", "padded/ckpt", "--prompt", "a<pad>"} + from);
  EXPECT_EQ(named.status, 1);
  expect_contains(named.message(),
                  "the token '<pad>' has the id 280, and the model's vocabulary "
                  "only 280 rows");
  EXPECT_EQ(run({"export", "padded/ckpt", "padded/model.gguf", "--format", "gguf"}).status, 0);
  EXPECT_EQ(run({"export", "ckpt", "plain/model.gguf", "--format", "gguf"}).status, 0);
  EXPECT_TRUE(read_file(path("padded/model.gguf")) == read_file(path("plain/model.gguf")));
}

}  // namespace
}  // namespace tessera
