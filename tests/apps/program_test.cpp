// What the program says and with which status it ends when something given to it is wrong.
#include <gtest/gtest.h>
#include <zlib.h>

#include <regex>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  ::deflateEnd(&stream);
  packed.resize(stream.total_out);
  return packed;
}

class BadInput : public ProgramTest {
 protected:
  // The run must end with `status`, say all of `parts` in one last line that begins with "tessera:
  // ", and leave neither a token cache, nor a checkpoint, nor metrics.
  void refused(const Words& words, int status, const Words& parts) {
    ProgramResult result =
        run(words + Words{"--checkpoint_dir", "ckpt", "--metrics_file", "metrics"});
    expect_refusal(result, status, parts);
    EXPECT_TRUE(names("cache").empty());
    EXPECT_FALSE(exists("ckpt"));
    EXPECT_FALSE(exists("metrics"));
  }
  static void expect_refusal(const ProgramResult& result, int status, const Words& parts) {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.message().find("tessera: "), 0u) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts) expect_contains(result.message(), part);
    expect_lacks(result.err, "terminate called");
    expect_lacks(result.err, "internal error");
  }
};

TEST_F(BadInput, FilesOfText) {
  refused(train({"--dataset", "missing.txt"}), 1, {"--dataset", "'missing.txt'", "no such file"});
  refused(train({"--dataset", "/proc/self/mem"}), 1,
          {"cannot read '/proc/self/mem'"});  // opens, then fails
  write("nul.txt", made_up_text(100) + std::string("a\0b", 3));
  refused(train({"--dataset", "nul.txt"}), 1, {"'nul.txt'", "looks binary", "zero byte at offset"});
  std::string packed = gzip(made_up_text(500));
  write("cut.txt.gz", packed.substr(0, packed.size() / 2));
  refused(train({"--dataset", "cut.txt.gz"}), 1, {"'cut.txt.gz'", "truncated"});
  write("lines.jsonl", "{\"text\": \"good\"}\n{\"text\": broken\n");
  refused(train({"--dataset", "lines.jsonl"}), 1, {"'lines.jsonl', line 2", "--on_bad_line=skip"});
  write("empty.txt", "");
  refused(train({"--dataset", "empty.txt"}), 1, {"'empty.txt'", "is empty"});
  make_directories(path("folder"));
  refused(train({"--dataset", "folder"}), 1, {"'folder'"});
  refused(train({"--tokenizer", "none.json"}), 1, {"tokenizer 'none.json'"});
}

TEST_F(BadInput, AnUnreadableFile) {
  std::filesystem::permissions(path("text.txt"), std::filesystem::perms::none);
  std::filesystem::permissions(path("."), std::filesystem::perms::all);
  ProgramResult result = run(train({}), [] {
    constexpr uid_t kNobody = 65534;  // root would read it all the same
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(126);
  });
  if (result.status == 126 || result.status == 127)
    GTEST_SKIP() << "the program is not open to all users here";
  expect_refusal(result, 1, {"cannot read 'text.txt'", "Permission denied"});
  EXPECT_TRUE(names("cache").empty());
}

TEST_F(BadInput, TooLittleTextForTheContext) {
  write("short.txt", "hello");
  ProgramResult result = run(train({"--dataset", "short.txt", "--checkpoint_dir", "ckpt"}));
  expect_refusal(result, 1, {"'short.txt'", "--max_context_width is 16", "has 6 tokens"});
  EXPECT_FALSE(exists("ckpt"));
}

TEST_F(BadInput, BrokenLinesCanBeSkipped) {
  std::string line = nlohmann::json{{"text", made_up_text(300)}}.dump();
  write("lines.jsonl", line + "\n{broken\n" + line + "\n");
  ProgramResult result =
      run(train({"--dataset", "lines.jsonl", "--on_bad_line=skip", "--max_steps", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "'lines.jsonl', line 2");
  expect_contains(result.err, "2 documents");
}

TEST_F(BadInput, InvalidUtf8IsData) {
  write("bytes.txt", made_up_text(100) + "\xff\xfe\x80 caf\xe9");
  EXPECT_EQ(run(train({"--dataset", "bytes.txt", "--max_steps", "1"})).status, 0);
}

TEST_F(BadInput, ShapesThatCannotBe) {
  refused(train({"--num_heads", "5"}), 2, {"--num_heads must divide --hidden_width", "32", "5"});
  refused(train({"--num_key_value_heads", "3"}), 2,
          {"--num_key_value_heads must divide --num_heads", "4", "3"});
  refused(train({"--vocab_size", "100"}), 1, {"tokenizer has 257 ids", "100", "--vocab_size 257"});
  refused(train({"--memory", "100KB"}), 1, {"--memory", "more than"});
}

TEST_F(BadInput, OptionsAndNames) {
  refused(train({"--datset", "text.txt"}), 2, {"unknown option --datset", "--dataset?"});
  refused(train({"--lr", "fast"}), 2, {"--lr", "fast"});
  refused(train({"stray"}), 2, {"stray"});
  refused({"train", "--model_name", "lama2_7b"}, 2, {"lama2_7b", "Did you mean llama2_7b?"});
  refused(train({"--model_type", "lama_v2"}), 2, {"--model_type", "did you mean llama_v2?"});
  refused(train({"--device_type", "tpu"}), 2, {"--device_type", "tpu", "cpu, cuda, gpu, xla"});
  refused(train({"--device_type", "cuda"}), 1, {"CUDA: no driver", "libcuda.so.1"});
  refused(train({"--moe", "1", "--context_parallel_degree", "2"}), 1,
          {"not built yet", "--moe", "--context_parallel_degree"});
  refused(train({"--model_type", "mixtral"}), 1, {"not built yet", "mixtral"});
  refused(train({"--cpu_isa", "sse9"}), 2, {"--cpu_isa", "sse9", "avx512"});
  expect_refusal(run(train({"--resume_from_checkpoint", "text.txt"})), 1, {"'text.txt' is a file"});
}

TEST_F(BadInput, ParametersThatAreNotThere) {
  for (const char* command : {"train", "plan"}) {
    Words words = Words{command} + tiny_job();
    refused(words + Words{"--freeze", "transformer.*"}, 1,
            {"--freeze: no parameter of this model matches 'transformer.*'",
             "model.layers.0.self_attn.q_proj.weight"});
    refused(words + Words{"--freeze", "*"}, 1, {"nothing is left to train"});
  }
}

TEST_F(BadInput, PassesThatCannotBeDisabled) {
  refused(train({"--disable_pass", "canonicalise"}), 1, {"no pass 'canonicalise'", "canonicalize"});
  refused(train({"--disable_pass", "precision"}), 1, {"'precision' is needed"});
  EXPECT_EQ(run(train({"--disable_pass", "canonicalize", "--max_steps", "1"})).status, 0);
}

TEST_F(BadInput, PlacesThatCannotBeWritten) {
  // A file stands where a directory should be: refused for everybody, root included.
  ProgramResult result = run(train({"--checkpoint_dir", "text.txt/ckpt", "--metrics_file", "m"}));
  expect_refusal(result, 1, {"--checkpoint_dir", "text.txt/ckpt"});
  EXPECT_FALSE(exists("m"));
  result = run(
      train({"--save_final_model", "1", "--model_dir", "text.txt/model", "--metrics_file", "m"}));
  expect_refusal(result, 1, {"--model_dir 'text.txt/model'", "Not a directory"});
  EXPECT_FALSE(exists("m"));
  expect_refusal(run(train({"--cache_dir", "text.txt/cache"})), 1, {"text.txt/cache"});
  expect_refusal(run(train({"--metrics_file", "none/m"})), 1, {"'none/m'"});
  expect_refusal(run(train({"--hash_file", "none/h"})), 1, {"'none/h'"});
}

TEST_F(BadInput, Commands) {
  expect_refusal(run({"trains"}), 2, {"unknown command 'trains'", "did you mean 'train'?"});
  expect_refusal(run({"trian"}), 2, {"did you mean 'train'?"});
  expect_refusal(run({"launch"}), 2, {"unknown command 'launch'; did you mean 'run'?"});
  expect_refusal(run({"xyz"}), 2, {"unknown command 'xyz'. Commands: ", "plan, explain, generate"});
  expect_refusal(run({"bench"}), 2, {"ops or step"});
  expect_refusal(run({"diff", "one"}), 2, {"two files"});
  expect_refusal(run({"diff", "text.txt", "text.txt"}), 1, {"'text.txt', line 1", "--hash_file"});
  write("empty", "");
  expect_refusal(run({"diff", "empty", "empty"}), 1, {"hold no results"});
  expect_refusal(run({"diff", "none", "none"}), 1, {"cannot read 'none'"});
  expect_refusal(run({"generate"}), 2, {"generate takes one checkpoint"});
  expect_refusal(run({"generate", "none"}), 1, {"no complete checkpoint in 'none'"});
  expect_refusal(run({"tokenizer"}), 2, {"train, encode, decode or info"});
  expect_refusal(run({"tokenizer", "trian"}), 2, {"trian"});
  expect_refusal(run({"version", "now"}), 2, {"now"});
  ProgramResult nothing = run({});
  EXPECT_EQ(nothing.status, 2);
  expect_contains(nothing.err, "Usage: tessera COMMAND");
}

class Help : public ProgramTest {};

TEST_F(Help, EveryCommandExplainsItself) {
  for (const char* command :
       {"train", "plan", "generate", "tokenizer", "bench", "diff", "version"}) {
    ProgramResult result = run({command, "--help"});
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_EQ(result.err, "") << command;
    expect_contains(result.out, "tessera " + std::string(command));
    if (std::string(command) == "version") continue;
    expect_contains(result.out, "Example");
  }
  for (const char* command : {"train", "plan", "bench"}) {
    std::string out = run({command, "-h"}).out;
    for (const char* option : {"--max_steps", "--hidden_width", "--dataset", "--cpu_isa"})
      expect_contains(out, option);
  }
  expect_contains(run({"generate", "--help"}).out, "--temperature");
  for (const char* spelling : {"--help", "-h", "help"})
    expect_contains(run({spelling}).out, "Examples");
  for (const char* command : {"train", "run", "completion", "version"})
    EXPECT_EQ(run({"help", command}).out, run({command, "--help"}).out);
  const ProgramResult unknown = run({"help", "trian"});
  EXPECT_EQ(unknown.status, 2);
  expect_contains(unknown.err, "unknown command 'trian'; did you mean 'train'?");
}

TEST_F(Help, NeedsNothingButTheProgram) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) seconds.push_back(run({"--help"}).seconds);
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  std::printf("tessera --help: %.0f ms, the median of 5\n", seconds[2] * 1e3);
  EXPECT_EQ(names("."), (std::set<std::string>{".err", ".out", "text.txt"}));
}

TEST_F(Help, Version) {
  for (const char* spelling : {"version", "--version"}) {
    ProgramResult result = run({spelling});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(std::regex_search(result.out,
                                  std::regex(R"(^tessera \d+\.\d+\.\d+, compiled by g\+\+ \d+)")))
        << result.out;
    expect_contains(result.out, "instruction set ");
    EXPECT_TRUE(std::regex_search(
        result.out, std::regex(R"(\ncommit ([0-9a-f]{12}(, changed)?|unknown), \w+ build\n)")))
        << result.out;
    expect_contains(result.out, ", glibc ");
    EXPECT_TRUE(std::regex_search(result.out, std::regex(R"(\nlibraries:.* libdnnl\.so\.\d)")))
        << result.out;
  }
}

}  // namespace
}  // namespace tessera
