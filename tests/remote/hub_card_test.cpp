#include "remote/hub_card.h"

#include <gtest/gtest.h>

#include "remote/hub_files.h"
#include "remote/hub_listing.h"
#include "remote/path_pattern.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::string card(std::string_view configs) {
  return cat("---\nlicense: mit\n", configs, "size_categories:\n- 1K<n<10K\n---\n# A data set\n");
}

// "name*[split: pattern pattern; ...]" of each configuration, or the flaw.
std::string told(const HubCard& card) {
  std::string text = card.flaw;
  for (const CardConfig& config : card.configs) {
    Names splits;
    for (const CardSplit& split : config.splits)
      splits.push_back(cat(split.name, ": ", join(split.patterns, " ")));
    text += cat(config.name, config.is_default ? "*[" : "[", join(splits, "; "), "]");
  }
  return text;
}
std::string read(std::string_view configs) { return told(parse_hub_card(card(configs))); }

TEST(HubCard, SaysWhichFilesAreWhat) {
  // As Hugging Face's tools write it.
  EXPECT_EQ(read("configs:\n"
                 "- config_name: all\n"
                 "  data_files:\n"
                 "  - split: train\n"
                 "    path: data/train-*\n"
                 "  - split: test\n"
                 "    path:\n"
                 "    - data/test-*\n"
                 "    - more/test.parquet\n"
                 "- config_name: small\n"
                 "  data_files: sample/10BT/*\n"
                 "  default: true\n"),
            "all[train: data/train-*; test: data/test-* more/test.parquet]"
            "small*[train: sample/10BT/*]");
  // By hand: deeper, with comments, quotes, lists and maps in lines, Windows' line ends.
  EXPECT_EQ(read("configs:  # of this data set\r\n"
                 "\r\n"
                 "    # the first\r\n"
                 "    -   config_name: 'it''s'\r\n"
                 "        data_files: {\"train\": [\"a/*.json\", 'b#.json'], test: c.json}\r\n"
                 "        drop_labels: true\r\n"
                 "    -\r\n"
                 "        config_name: \"two \\\"2\\\"\" # the second\r\n"
                 "        data_files: [\"./x.txt\", 'y.txt']\r\n"
                 "    - {data_dir: deep/er}\r\n"
                 "    - config_name: whole\r\n"),
            "it's[train: a/*.json b#.json; test: c.json]two \"2\"[train: x.txt y.txt]"
            "default[: deep/er/**]whole[]");
  EXPECT_EQ(read("configs: [{config_name: a, data_files: b.txt}]\n"), "a[train: b.txt]");
  EXPECT_EQ(read("configs:\n- config_name: \"\\x41\"\n  data_files: &all >-\n    x\n    y\n"
                 "- config_name: b\n  data_files: *all\n  default: on\n"),
            "A[train: x y]b*[train: x y]");
  EXPECT_EQ(read("configs:\n- &base {config_name: en, data_files: en.txt}\n"
                 "- {<<: *base, config_name: both}\n"
                 "- {config_name: last, <<: [{data_files: a.txt}, *base]}\n"),
            "en[train: en.txt]both[train: en.txt]last[train: a.txt]");
  EXPECT_EQ(told(parse_hub_card("\xef\xbb\xbf\n \n---\nconfigs:\n- config_name: a\n---\n")), "a[]");
  EXPECT_EQ(read("configs: x\nconfigs:\n- config_name: a\n  config_name: b\n"), "b[]");
}

TEST(HubCard, SaysNothingWithoutConfigurations) {
  for (const char* text : {"", "# A card\nconfigs:\n- x\n", "---\n", "---\nconfigs:\n- x\n",
                           "---\nlicense: mit\n---\n", "---\n---\nconfigs: []\n",
                           "---\nother:\n  configs:\n  - x\nmyconfigs: 3\n---\n"})
    EXPECT_EQ(told(parse_hub_card(text)), "") << text;
  for (const char* none : {"[]", "", "null"})
    EXPECT_EQ(told(parse_hub_card(cat("---\nconfigs: ", none, "\n---\n"))), "");
}

TEST(HubCard, RefusesWhatItDoesNotUnderstand) {
  const auto refuses = [](const char* configs, const char* why) {
    const HubCard card = parse_hub_card(cat("---\n", configs, "\n---\n"));
    EXPECT_TRUE(card.configs.empty()) << configs;
    expect_contains(card.flaw, why);
  };
  refuses("configs: text", "line 2: configs is no list");
  refuses("configs:\n- config_name: a\n  data_files: *.json", "line 4: ");
  refuses("configs:\n- config_name: a\n\tdata_files: x", "line 4: ");
  refuses("configs:\n- config_name: a\n- config_name: a", "line 4: 'a' comes twice");
  refuses("configs:\n- data_files: [a, b", "did not find expected ',' or ']'");
  refuses("configs:\n- data_files: 'a", "found unexpected end of stream");
  refuses("license: [mit", "did not find expected");
  refuses("configs:\n- data_files: []", "line 3: a list of paths is empty");
  refuses("configs:\n- data_files:\n  - path: a", "line 4: files are not given by `split` and");
  refuses("configs:\n- data_files:\n  - split: a\n    path: b\n  - split: a\n    path: c",
          "line 6: split 'a' comes twice");
  refuses("configs:\n- default: 1", "line 3: default is neither true nor false");
  refuses("configs:\n- {<<: b}", "line 3: '<<' is no map");
  refuses("configs:\n- [a]: b", "line 3: a name is no text");
  refuses("configs:\n- config_name: a\n  default: true\n- config_name: default",
          "several configurations are the default");
  refuses("configs:\n- data_dir: a\n  data_files: b", "line 3: data_files of a data_dir");
  for (const char* path : {"../a", "/a", "a/../b", "https://a/b", "hf://datasets/a/b"})
    refuses(cat("configs:\n- data_files: ", path).c_str(), "leads elsewhere");
  std::string long_text = cat("a: &a ", std::string(200'000, 'x'), "\nb: [");
  for (int i = 0; i < 20'000; ++i) long_text += "*a, ";
  refuses(cat(long_text, "x]").c_str(), "it has too many values");
  refuses("configs: &all\n- *all", "line 3: '*all' stands for nothing");
  std::string many = "a0: &a0 [x]\n";
  for (int i = 1; i < 9; ++i) {
    many += cat("a", i, ": &a", i, " [");
    for (int k = 0; k < 9; ++k) many += cat("*a", i - 1, ", ");
    many += "x]\n";
  }
  refuses(cat(many, "configs: [{data_files: *a8}]").c_str(), "it has too many values");
  refuses(cat("configs:\n- data_files: ", std::string(10'000'000, '[')).c_str(), "too many levels");
  std::string deep = "configs:\n";
  for (int i = 0; i < 1000; ++i) deep += cat(std::string(static_cast<size_t>(i), ' '), "-\n");
  refuses(deep.c_str(), "too many levels");
}

TEST(HubCard, PatternsArePaths) {
  const auto matches = [](const char* pattern, std::initializer_list<const char*> yes,
                          std::initializer_list<const char*> no) {
    for (const char* path : yes) EXPECT_TRUE(matches_path_pattern(path, pattern)) << path;
    for (const char* path : no) EXPECT_FALSE(matches_path_pattern(path, pattern)) << path;
  };
  matches("a/b.json", {"a/b.json"}, {"a/b.jsonl", "b.json", "a/bXjson", ""});
  matches("data/train-*", {"data/train-0.parquet", "data/train-"},
          {"data/train-/0", "x/data/train-0"});
  matches("*/*.json", {"a/b.json"}, {"a.json", "a/b/c.json"});
  matches("data/**", {"data/a", "data/a/b"}, {"data", "other/a"});
  matches("**/*.json", {"a.json", "a/b.json", "a/b/c.json"}, {"a.jsonl"});
  matches("a/**/c", {"a/c", "a/b/c", "a/b/b/c"}, {"ac", "a/bc"});
  matches("**", {"a", "a/b"}, {});
  matches("a?c[0-9][!x]", {"abc1y"}, {"a/c1y", "abcxy", "abc1x", "abc1"});
  matches("[]a][/]", {}, {"]/", "a/"});
  matches("[a", {"[a"}, {"a"});
  EXPECT_FALSE(matches_path_pattern(std::string(1000, 'a'), cat(std::string(500, '*'), "b")));
}

std::string chosen(std::string_view configs, std::initializer_list<const char*> paths,
                   const std::string& config = "") {
  std::vector<HubFile> files;
  for (const char* path : paths) files.push_back({path, 1, "", "", ""});
  const ChosenFiles found = choose_card_files(parse_hub_card(card(configs)), files, config, "o/n");
  Names names;
  for (const HubFile& file : found.files) names.push_back(cat(file.split, " ", file.path));
  for (const std::string& warning : found.warnings) names.push_back(warning);
  return join(names, ", ");
}

TEST(HubCard, ChoosesFiles) {
  const std::initializer_list<const char*> files{"README.md", "b.json", "a.json", "c.csv", "d.txt"};
  const char* two =
      "configs:\n- config_name: x\n  data_files: {train: [a.json, b.json], eval: a.json}\n"
      "- config_name: y\n  data_files: c.csv\n";
  expect_contains(user_error([&] { chosen(two, files); }),
                  "'o/n' has several configurations: name one of x, y (--dataset_config_name)");
  EXPECT_EQ(chosen(two, files, "x"), "train a.json, eval a.json, train b.json");
  EXPECT_EQ(chosen(two, files, "y"), "") << "of no kind that is read";
  EXPECT_EQ(chosen(two, files, "x/eval"), "eval a.json");
  for (const char* name : {"eval", "z", "x/z", "z/eval"})
    expect_contains(user_error([&] { chosen(two, files, name); }),
                    cat("'o/n' has no configuration or split '", name, "': name one of x, y"));
  EXPECT_EQ(chosen(two, {"deep/a.json", "b.json"}, "deep"), " deep/a.json");
  const std::string usual = cat(two,
                                "  default: false\n- config_name: default\n  data_files:\n"
                                "  - split: train\n    path: '*.json'\n"
                                "  - split: extra\n    path: d.txt\n");
  EXPECT_EQ(chosen(usual, files),
            "train a.json, train b.json, 'o/n': its JSON files are read, and 1 of another kind is "
            "left out, the first: 'd.txt'; fetch them and give their path to read them");
  EXPECT_EQ(chosen(usual, files, "extra"), "extra d.txt");
  EXPECT_EQ(chosen("configs:\n- config_name: all\n", files).find(" a.json,  b.json, "), 0u);
  EXPECT_EQ(chosen("configs:\n- config_name: all\n  data_files: gone.json\n", {"a.json"}),
            " a.json, 'o/n': its README.md describes configuration 'all' by files that are not "
            "there: their paths tell what is read");
  EXPECT_EQ(chosen("configs:\n- config_name: x\n  data_files: gone.json\n- config_name: y\n",
                   {"a.json"}, "x")
                .find(" a.json, 'o/n': its README.md describes configuration 'x' by files"),
            0u);
  EXPECT_EQ(chosen("", {"a.json"}), " a.json");
  EXPECT_EQ(chosen("configs:\n- data_dir: .\n", {"a.json", "b/c.json"}), " a.json,  b/c.json");
}

TEST(HubCard, IsReadWithTheList) {
  LocalServer server;
  const RemoteOptions options = server.options();
  server.write("hub/datasets/o/n.json", R"({"revisions": ["main"]})");
  const auto write = [&](const char* name, std::string_view content) {
    server.write(cat("hub/datasets/o/n/main/", name), content);
  };
  write("en.json", "{}");
  write("other.json", "{}");
  write("README.md", card("configs:\n- data_files:\n  - split: validation\n    path: en.json\n"
                          "  - split: train_sft\n    path: other.json\n"));
  const auto entries = list_hub_files(parse_hub_reference("hf://datasets/o/n"), options);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].path, "en.json");
  EXPECT_EQ(entries[0].split, "validation");
  EXPECT_EQ(entries[1].split, "train_sft");
  EXPECT_EQ(list_hub_files(parse_hub_reference("hf://datasets/o/n/train_sft"), options).size(), 1u);

  server.write("hub/datasets/o/odd.json", R"({"revisions": ["main"]})");
  server.write("hub/datasets/o/odd/main/a.json", "{}");
  server.write("hub/datasets/o/odd/main/README.md", card("configs:\n- data_files: *x\n"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(list_hub_files(parse_hub_reference("hf://datasets/o/odd"), options).size(), 1u);
  expect_contains(testing::internal::GetCapturedStderr(),
                  "'hf://datasets/o/odd': `configs:` of its README.md is not read (line 4: '*x' "
                  "stands for nothing): the paths of the files tell ");
}

}  // namespace
}  // namespace tessera
