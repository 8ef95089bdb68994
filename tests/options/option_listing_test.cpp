#include "options/option_listing.h"

#include "options/model_options.h"
#include "tests/base/scratch_directory.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

std::string listing(ParsedOptions parsed) {
  ModelConfig model = resolve_model(parsed);
  return option_listing(parsed, model);
}

// The listing, given back, says the same: every value, and which were given.
void expect_round_trip(const ParsedOptions& parsed, const std::string& text) {
  ParsedOptions again = parse_files({text}, {}, parsed.scope);
  RunConfig config = parsed.config;
  config.config = again.config.config;
  config.print_config = again.config.print_config;
  EXPECT_EQ(again.config, config) << text;
  again.given.erase("config");
  for (const auto& [option, origin] : parsed.given) {
    bool about_files = option == "config" || option == "print_config";
    EXPECT_EQ(again.given.erase(option), about_files ? 0u : 1u) << option;
  }
  EXPECT_TRUE(again.given.empty()) << again.given.begin()->first;
}

TEST(OptionListing, RoundTripsEveryRow) {
  const ModelConfig model;
  std::vector<std::string> all;
  for (OptionScope scope : {OptionScope::kTrain, OptionScope::kPlan}) {
    expect_round_trip(parse({}, scope), option_listing(parse({}, scope), model));
    for (const OptionRow& row : option_table()) {
      std::string other = other_value(row);
      if (!(row.scopes & in(scope)) || other.empty() || row.name == "config") continue;
      ParsedOptions parsed;
      try {
        parsed = parse({cat("--", row.name, "=", other)}, scope);
      } catch (const UserError&) {
        continue;  // not built, or it needs another option beside it
      }
      SCOPED_TRACE(row.name);
      expect_round_trip(parsed, option_listing(parsed, model));
      // What does not go with the others.
      const bool alone = row.name.starts_with("model_") || row.name == "compare_baselines" ||
                         row.name == "hf_pretrained_model_name_or_dir";
      if (scope == OptionScope::kPlan && !alone) {
        all.push_back(cat("--", row.name, "=", other));
      }
    }
  }
  EXPECT_GT(all.size(), 120u);
  expect_round_trip(parse(all), option_listing(parse(all), model));
}

TEST(OptionListing, AddressesAreWithoutSecrets) {
  const std::string text = listing(parse({"--dataset=https://u:p@host/d.txt?key=k"}));
  expect_contains(text, "\ndataset = \"https://host/d.txt?...\"");
  EXPECT_EQ(text.find("u:p"), std::string::npos);
}

TEST(OptionListing, RoundTripsAwkwardValues) {
  std::vector<std::string> arguments{"--dataset=\t\"None\" \n\\'quoted' \xc3\xa9\x7f",
                                     "--tokenizer=''a''",
                                     "--cache_dir=' '",
                                     "--validation_dataset=None",
                                     "--tensorboard_dir",
                                     "' a '",
                                     "\"'b'\"",
                                     "None",
                                     "--grad_clip=inf",
                                     "--lr=0.30000000000000004",
                                     "--min_lr=5e-324",
                                     "--seed=9223372036854775807",
                                     "--memory=80GiB",
                                     "--lr_decay_iters=None",
                                     "--checkpoint_dir",
                                     "a",
                                     "b",
                                     "--checkpoint_freq",
                                     "1",
                                     "2",
                                     "--num_kept_checkpoints",
                                     "3",
                                     "4",
                                     "--disable_pass=None",
                                     "--betas=0.5,0.75"};
  ParsedOptions parsed = parse(arguments);
  EXPECT_EQ(parsed.config.tokenizer, "'a'");
  expect_round_trip(parsed, listing(parsed));
}

// The line of an option, without the blanks between setting and comment.
std::string line_of(const std::string& text, const std::string& option) {
  for (std::string_view line : split(text, '\n')) {
    std::string_view bare = line.starts_with("# ") ? line.substr(2) : line;
    if (!bare.starts_with(option + " =")) continue;
    size_t comment = line.find("  # ");
    return cat(trim(line.substr(0, comment)), "  ", line.substr(comment + 2));
  }
  return "";
}

TEST(OptionListing, SaysWhereEachValueIsFrom) {
  std::string text = listing(
      parse_files({"\nepochs = 2", "seed = 3"}, {"--learning_rate=0.5", "--model_name=llama2_7b",
                                                 "--tensor_parallel_degree=2", "--num_layers=3"}));
  EXPECT_EQ(line_of(text, "epochs"), "epochs = 2  # a.toml:2:1");
  EXPECT_EQ(line_of(text, "seed"), "seed = 3  # b.toml:1:1");
  EXPECT_EQ(line_of(text, "lr"), "lr = 0.5  # command line");
  EXPECT_EQ(line_of(text, "min_lr"), "# min_lr = 1e-05  # default");
  EXPECT_EQ(line_of(text, "lr_decay_iters"), "# lr_decay_iters = \"None\"  # default: max_steps");
  EXPECT_EQ(line_of(text, "hidden_width"), "# hidden_width = 4096  # --model_name");
  EXPECT_EQ(line_of(text, "model_type"), "# model_type = \"llama_v2\"  # --model_name");
  EXPECT_EQ(line_of(text, "num_layers"), "num_layers = 3  # command line");
  EXPECT_EQ(line_of(text, "use_smp_implementation"),
            "# use_smp_implementation = true  # follows from another option");
  EXPECT_EQ(line_of(text, "config") + line_of(text, "print_config") + line_of(text, "prompt"), "");
  expect_contains(text, "\n\n[learning_rate]\n");
}

TEST(OptionListing, AShapeThatIsNotUsedSaysSo) {
  ScratchDirectory scratch;
  auto path = scratch.write("config.json", R"({"model_type": "mistral", "hidden_size": 64,
                                               "num_attention_heads": 4,
                                               "num_key_value_heads": 2})");
  std::string text = listing(parse({cat("--model_config=", path.string()), "--hidden_width=32"}));
  EXPECT_EQ(line_of(text, "hidden_width"),
            "hidden_width = 32  # command line; --model_config has 64");
  EXPECT_EQ(line_of(text, "num_heads"), "# num_heads = 4  # --model_config");
}

}  // namespace
}  // namespace tessera
