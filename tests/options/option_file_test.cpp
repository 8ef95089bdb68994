#include "options/option_file.h"

#include <cmath>

#include "tests/base/scratch_directory.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

std::string file_error(const std::string& text, std::vector<std::string> arguments = {}) {
  return message_of<UsageError>([&] { parse_files({text}, arguments); });
}

TEST(OptionFile, NamesAliasesSpellingsAndTables) {
  ParsedOptions parsed = parse_files({R"(
num-steps = 7
lr = 3e-4
decay_all = true
bf16 = 0
grad_clip = inf
memory = "80GiB"
betas = [0.8, 0.99]
dropout = 0.25

[model]
hidden-width = 1_024
"num_layers" = 3
sliding_window = "None"

[output]
log_dir = ["a b", 'c']
disable_pass = []
checkpoint_dir = ["here", "there"]
checkpoint_freq = [10, 20]
num_kept_checkpoints = [1, 2]
)"});
  const RunConfig& c = parsed.config;
  EXPECT_EQ(c.max_steps, 7);
  EXPECT_EQ(c.lr, 3e-4);
  EXPECT_TRUE(c.decay_all);
  EXPECT_FALSE(c.bf16);
  EXPECT_TRUE(std::isinf(c.grad_clip));
  EXPECT_EQ(c.memory, int64_t{80} << 30);
  EXPECT_EQ(c.beta1, 0.8);
  EXPECT_EQ(c.beta2, 0.99);
  EXPECT_EQ(c.attn_pdrop, 0.25);
  EXPECT_EQ(c.hidden_width, 1024);
  EXPECT_EQ(c.num_layers, 3);
  EXPECT_EQ(c.tensorboard_dir, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(c.checkpoint_dir, (std::vector<std::string>{"here", "there"}));
  EXPECT_EQ(c.checkpoint_freq, (std::vector<std::string>{"10", "20"}));
  EXPECT_EQ(parsed.given.at("max_steps"), "a.toml:2:1");
  EXPECT_EQ(parsed.given.at("beta2"), "a.toml:8:1");
  EXPECT_EQ(parsed.given.at("num_layers"), "a.toml:13:1");
  EXPECT_TRUE(parsed.is_given("sliding_window"));
  EXPECT_FALSE(parsed.is_given("epochs"));
}

TEST(OptionFile, StringsStandForThemselves) {
  ParsedOptions parsed = parse_files({R"(prompt = " \"quoted\" ")"}, {}, OptionScope::kGenerate);
  EXPECT_EQ(parsed.config.prompt, " \"quoted\" ");
  parsed = parse_files({"prompt = \"'quoted'\""}, {}, OptionScope::kGenerate);
  EXPECT_EQ(parsed.config.prompt, "'quoted'");
  EXPECT_EQ(parse_files({R"(log_dir = [" a ", "'b'"])"}).config.tensorboard_dir,
            (std::vector<std::string>{" a ", "'b'"}));
  EXPECT_EQ(parse_files({"dataset = 'None'"}).config.dataset, "");
}

TEST(OptionFile, TheCommandLineWinsThenTheLastFileThenTheEnvironment) {
  std::vector<std::string> files{"max_steps = 1\nepochs = 1\nseed = 1\ncache_dir = 'file'",
                                 "seed = 3\nepochs = 2\nlearning_rate = 0.5"};
  for (bool first : {true, false}) {
    std::vector<std::string> arguments{"--max_training_steps=5"};
    arguments.insert(first ? arguments.begin() : arguments.end(), {"--config=0", "--config", "1"});
    ParsedOptions parsed = parse_options(
        arguments, OptionScope::kTrain,
        [](const char* name) {
          return std::string(name) == "XLA_CACHE_DIR" ? std::optional<std::string>("environment")
                                                      : std::nullopt;
        },
        [&](const std::string& path) { return files.at(static_cast<size_t>(std::stoi(path))); });
    EXPECT_EQ(parsed.config.max_steps, 5);
    EXPECT_EQ(parsed.config.epochs, 2);
    EXPECT_EQ(parsed.config.seed, 3);
    EXPECT_EQ(parsed.config.lr, 0.5);
    EXPECT_EQ(parsed.config.cache_dir, "file");
    EXPECT_EQ(parsed.given.at("max_steps"), "command line");
    EXPECT_EQ(parsed.given.at("seed"), "1:1:1");
    EXPECT_EQ(parsed.config.config, (std::vector<std::string>{"0", "1"}));
    EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings[0];
  }
  // One of a bundle on the command line leaves the file the others.
  ParsedOptions parsed = parse_files({"dropout = 0.5"}, {"--resid_pdrop=0.25"});
  EXPECT_EQ(parsed.config.resid_pdrop, 0.25);
  EXPECT_EQ(parsed.config.embd_pdrop, 0.5);
}

TEST(OptionFile, ConfigTakesOneWordSoThatOthersMayFollow) {
  ParsedOptions parsed = parse_options(
      std::vector<std::string>{"--config", "f", "checkpoints"}, OptionScope::kGenerate,
      [](const char*) { return std::nullopt; }, [](const std::string&) { return ""; });
  EXPECT_EQ(parsed.words, std::vector<std::string>{"checkpoints"});
}

TEST(OptionFile, MistakesAreToldWithTheirPlace) {
  EXPECT_EQ(file_error("\n  batch_sise = 5"),
            "a.toml:2:3: batch_sise: unknown option; did you mean batch_size?");
  EXPECT_EQ(file_error("[model]\nfrobnicate = 5"),
            "a.toml:2:1: frobnicate: unknown option; see tessera plan --help");
  EXPECT_EQ(file_error("trian-batch-size = 5"),
            "a.toml:1:1: trian-batch-size: unknown option; did you mean train_batch_size?");
  EXPECT_EQ(file_error("prompt = 'x'"),
            "a.toml:1:1: prompt is not an option of tessera plan but of tessera generate");
  EXPECT_EQ(file_error("max_steps = 'many'"),
            "a.toml:1:1: max_steps expects an integer: it is 'many'");
  EXPECT_EQ(file_error("max_steps = true"),
            "a.toml:1:1: max_steps expects an integer: it is 'True'");
  expect_contains(file_error("beta1 = 1.5"), "a.toml:1:1: beta1 expects a value of at least 0");
  expect_contains(file_error("lr = nan"), "a.toml:1:1: lr expects a number");
  // Also where the command line wins.
  expect_contains(file_error("max_steps = 'many'", {"--max_steps=3"}), "expects an integer");
  EXPECT_EQ(file_error("lr = 1\n[x]\nlearning_rate = 2"),
            "a.toml:3:1: learning_rate: lr is already set at a.toml:1:1");
  EXPECT_EQ(file_error("dropout = 0.1\nembd_pdrop = 0.2"),
            "a.toml:2:1: embd_pdrop: embd_pdrop is already set at a.toml:1:1");
  EXPECT_EQ(file_error("lr = [1, 2]"), "a.toml:1:1: lr expects one value: it has 2");
  EXPECT_EQ(file_error("lr = []"), "a.toml:1:1: lr expects one value: it has 0");
  EXPECT_EQ(file_error("max_steps = []"), "a.toml:1:1: max_steps expects one value: it has 0");
  EXPECT_EQ(file_error("betas = 0.9"), "a.toml:1:1: betas expects 2 values: it has 1");
  EXPECT_EQ(file_error("config = 'b.toml'"), "a.toml:1:1: config belongs on the command line");
  EXPECT_EQ(file_error("print_config = true"),
            "a.toml:1:1: print_config belongs on the command line");
  expect_contains(file_error("lr = 2024-01-01"), "a.toml:1:6: lr expects a string, a number");
  expect_contains(file_error("log_dir = [[1]]"), "log_dir expects a string, a number");
  expect_contains(file_error("lr = {peak = 1}"), "a.toml:1:1: lr expects a value or a list");
  expect_contains(file_error("[a.b]\nlr = 1"), "b is a table inside a table");
  // The rules between options hold as ever.
  expect_contains(file_error("finetune = true"), "--finetune 1 needs");
}

// For some of these toml++ 3.3 has no defined behaviour where they stand outside of strings.
TEST(OptionFile, LettersOutsideOfAsciiStandInStringsAndComments) {
  for (std::string letter :
       {"\xc3\xa9", "\xc9\x86", "\xd1\x8f", "\xe3\x81\x82", "\xef\xbb\xbe", "\xc2\xa0"}) {
    auto refused = [&](const std::string& text, const std::string& where) {
      expect_contains(file_error(text), cat("a.toml:", where, ": a letter outside of ASCII"));
    };
    refused(cat("lr = 2.5", letter), "1:9");
    refused(cat(letter, " = 1"), "1:1");
    refused(cat("# ", letter, "\ndataset = '", letter, "' ", letter), "2:15");
    refused(cat("lr = 1'", letter, "'"), "1:8");
    refused(cat("lr = 1.\"", letter), "1:9");
    // Words that the library would read letter by letter to say that they are no number.
    for (std::string begin : {"lr = 1[", "lr = 1=", "lr = [2, 1lr=", "lr = 1{"})
      expect_contains(file_error(cat(begin, "\"", letter, "\"")), "a.toml:1:");
    refused(cat(R"(dataset = """)", letter, R"("""")", letter, "\""), "1:19");
    refused(cat(R"(dataset = "\\")", letter), "1:15");
    refused(cat("dataset = \"\"\"a\\  \n\t", letter, "\"\"\""), "2:2");
    refused(cat(R"(dataset = """a\)", letter, R"(""")"), "1:16");

    auto read = [](const std::string& text) { return parse_files({text}).config.dataset; };
    std::string comment = cat("  # ", letter, " '\nlr = 1 # ", letter);
    for (std::string quote : {"'", "\"", "'''", "\"\"\""})
      EXPECT_EQ(read(cat("dataset = ", quote, "# ", letter, quote, comment)), "# " + letter);
    for (std::string begin : {"dataset=", "\n\"dataset\" =", "lr = 1\ndataset\t="})
      EXPECT_EQ(read(cat(begin, "'", letter, "'")), letter);
    EXPECT_EQ(read(cat(R"(dataset = "\"x)", letter, "\"")), "\"x" + letter);
    EXPECT_EQ(read(cat(R"(dataset = 'a\'  #')", letter)), "a\\");
    EXPECT_EQ(read(cat(R"(dataset = """"")", letter, R"(""""" # )", letter)),
              cat(R"("")", letter, R"("")"));
    EXPECT_EQ(read(cat("dataset = '''\n", letter, "'''''")), letter + "''");
    EXPECT_EQ(read(cat("dataset = \"\"\"\\\n  a", letter, "\\\"\"\"\"")), cat("a", letter, "\""));
  }
}

TEST(OptionFile, WhatIsNoToml) {
  expect_contains(file_error("lr = 1\nmax_steps\n"), "a.toml:2:");
  expect_contains(file_error("lr = 1\nlr = 2\n"), "a.toml:2:");
  expect_contains(file_error("dataset = \"\xff\""), "a.toml:1:");
  expect_contains(file_error("dataset = \"no end"), "a.toml:1:");
  expect_contains(file_error("[}"), "a.toml:1:");
  expect_contains(file_error(std::string((1 << 20) + 1, '\n')), "a.toml: larger than 1 MiB");
  std::string dots(1000, '.'), lists(100, '[');
  expect_contains(file_error("\na" + dots), "a.toml:2:1: more than 250 dots in one line");
  expect_contains(file_error("a = " + lists), "a.toml:1:");
  EXPECT_EQ(parse_files({"\xef\xbb\xbfmax_steps = 3\r\n# end"}).config.max_steps, 3);
  EXPECT_EQ(parse_files({""}).given.size(), 1u);  // --config
}

TEST(OptionFile, FilesAreReadWithinBounds) {
  ScratchDirectory scratch;
  std::string path = scratch.write("options.toml", "max_steps = 3");
  EXPECT_EQ(parse({"--config", path}).config.max_steps, 3);
  auto error = [](const std::string& file) {
    return user_error([&] { parse({cat("--config=", file)}); });
  };
  EXPECT_EQ(error("/nowhere/x.toml"),
            "--config: cannot read '/nowhere/x.toml': No such file or directory");
  expect_contains(error(scratch.path()), "cannot read");
  expect_contains(error("/dev/zero"), "is larger than the 1 MiB");
}

}  // namespace
}  // namespace tessera
