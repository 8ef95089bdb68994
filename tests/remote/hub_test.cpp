#include <gtest/gtest.h>

#include "remote/hub_files.h"
#include "remote/hub_listing.h"
#include "remote/source.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

TEST(HubReference, Names) {
  HubReference name = parse_hub_reference("hf://datasets/allenai/c4/en@v1.0");
  EXPECT_TRUE(name.is_dataset);
  EXPECT_EQ(name.repository, "allenai/c4");
  EXPECT_EQ(name.config, "en");
  EXPECT_EQ(name.revision, "v1.0");
  name = parse_hub_reference("hf://datasets/wikicorpus@refs/convert/parquet");
  EXPECT_EQ(name.repository, "wikicorpus");
  EXPECT_EQ(name.revision, "refs/convert/parquet");
  name = parse_hub_reference("hf://meta-llama/Llama-3.2-1B");
  EXPECT_FALSE(name.is_dataset);
  EXPECT_EQ(name.repository, "meta-llama/Llama-3.2-1B");
  EXPECT_EQ(parse_hub_reference("hf://gpt2").repository, "gpt2");
  for (const char* bad :
       {"hf://", "hf:///", "hf://datasets/", "hf://a/b/c", "hf://datasets/a/b/c/d", "hf://a//",
        "hf://../b", "hf://a/..", "hf://a/b@", "hf://a/b@x/../y", "hf://a/b?x", "hf://a b/c",
        "http://a/b", "hf://a/b@x@y", "hf://..t", "hf://a/.b", "hf://-a/b"})
    expect_contains(user_error([&] { parse_hub_reference(bad); }), "names nothing on the hub");
}

TEST(HubReference, ShortNames) {
  EXPECT_EQ(find_dataset_name("c4")->repository, "allenai/c4");
  EXPECT_EQ(find_dataset_name("c4")->config, "en");
  EXPECT_EQ(find_dataset_name("allenai/c4")->config, "en");
  EXPECT_EQ(find_dataset_name("wikicorpus")->config, "raw_en");
  EXPECT_EQ(find_dataset_name("openwebtext")->repository, "Skylion007/openwebtext");
  EXPECT_EQ(find_dataset_name("a/b")->repository, "a/b");
  EXPECT_FALSE(find_dataset_name("text.txt"));
  for (const char* file : {"data/own.txt", "data/own.jsonl", "data/own.json.gz", "data/a.parquet"})
    EXPECT_FALSE(find_dataset_name(file)) << file;
  EXPECT_FALSE(find_dataset_name("/a/b"));
}

ChosenFiles choose(std::initializer_list<const char*> paths, const std::string& config = "") {
  std::vector<HubFile> files;
  for (const char* path : paths) files.push_back({path, 1, "", ""});
  return choose_data_files(files, config, "o/n");
}

std::vector<std::string> chosen(std::initializer_list<const char*> paths,
                                const std::string& config = "") {
  std::vector<std::string> names;
  for (const HubFile& file : choose(paths, config).files) names.push_back(file.path);
  return names;
}

using Names = std::vector<std::string>;

TEST(DataFiles, AreToldByKindAndConfiguration) {
  EXPECT_EQ(chosen({"README.md", "data/train-1.parquet", "data/train-0.parquet", "old.json"}),
            (Names{"data/train-0.parquet", "data/train-1.parquet"}));
  EXPECT_EQ(chosen({"en/c4-train.0.json.gz", "en.noclean/c4-train.0.json.gz", "c4.py"}, "en"),
            (Names{"en/c4-train.0.json.gz"}));
  EXPECT_EQ(chosen({"train/a.jsonl.zst", "test/b.jsonl.zst", "dataset_infos.json", ".x/c.json"}),
            (Names{"test/b.jsonl.zst", "train/a.jsonl.zst"}));
  EXPECT_EQ(chosen({"default/train/0.parquet", "other/train/0.parquet"}),
            (Names{"default/train/0.parquet"}));
  EXPECT_EQ(chosen({"a.parquet", "sub/b.jsonl"}, "sub"), (Names{"sub/b.jsonl"}));
  EXPECT_EQ(chosen({"plain_text/train-0.parquet"}), (Names{"plain_text/train-0.parquet"}));
  EXPECT_EQ(chosen({"script.py", "README.md"}, "raw_en"), Names{});
  expect_contains(user_error([] {
                    chosen({"en/a.json", "de/a.json"});
                  }),
                  "has several configurations: name one of de, en");
  expect_contains(user_error([] {
                    chosen({"en/a.json", "de/a.json"}, "fr");
                  }),
                  "has no configuration 'fr'; it has de, en");
  expect_contains(user_error([] { chosen({"a.json"}, "fr"); }), "leave it out");
}

TEST(DataFiles, ADirectoryIsAConfigurationWhereNoDataAreOutsideOfThem) {
  EXPECT_EQ(chosen({"data/train-0.jsonl", "assets/notes.txt"}), (Names{"data/train-0.jsonl"}));
  EXPECT_EQ(chosen({"train-0.jsonl", "extra/train-0.jsonl"}), (Names{"train-0.jsonl"}));
  EXPECT_EQ(chosen({"en/a.parquet", "assets/notes.txt", "notes.txt"}), (Names{"en/a.parquet"}));
  EXPECT_EQ(chosen({"default/a.json", "other/b.parquet"}), (Names{"default/a.json"}));
  EXPECT_EQ(chosen({"x/partial-train/0.parquet", "x/partial-test/0.parquet"}, "x").size(), 2u);
  EXPECT_EQ(chosen({"data/train-0.jsonl", "assets/notes.txt"}, "data"),
            (Names{"data/train-0.jsonl"}));
  EXPECT_EQ(chosen({"data/en/a.json"}), (Names{"data/en/a.json"}));
  // As FineWeb is.
  const std::initializer_list<const char*> many{"data/CC-2013/0.parquet", "data/CC-2014/0.parquet",
                                                "sample/100BT/0.parquet", "sample/10BT/0.parquet"};
  expect_contains(user_error([&] { chosen(many); }), "name one of CC-2013, CC-2014, data, sample ");
  EXPECT_EQ(chosen(many, "data").size(), 2u);
  EXPECT_EQ(chosen(many, "CC-2014"), Names{"data/CC-2014/0.parquet"});
  EXPECT_EQ(chosen(many, "sample/10BT"), Names{"sample/10BT/0.parquet"});
  const ChosenFiles samples = choose(many, "sample");
  EXPECT_EQ(samples.files.size(), 2u);
  ASSERT_EQ(samples.warnings.size(), 1u);
  EXPECT_EQ(samples.warnings[0],
            "'o/n': all that is in 'sample' is read as one data set, of the directories 100BT, "
            "10BT; --dataset_config_name sample/100BT reads one");
  EXPECT_EQ(choose(many, "sample/10BT").warnings, Names{});
}

TEST(DataFiles, WhatIsOfAnotherKindIsNamed) {
  // As TinyStories is.
  const ChosenFiles some =
      choose({"Tiny-train.txt", "Tiny-valid.txt", "data/train-00000-of-00001.parquet"});
  EXPECT_EQ(some.files.size(), 1u);
  ASSERT_EQ(some.warnings.size(), 1u);
  EXPECT_EQ(some.warnings[0],
            "'o/n': its Parquet files are read, and 2 of other kinds are left out, the first: "
            "'Tiny-train.txt'; fetch them and give their path to read them");
}

TEST(DataFiles, SplitsAreToldByTheirNames) {
  EXPECT_EQ(split_of("data/train_sft-00000-of-00003-a3ecf92756993583.parquet"), "train_sft");
  EXPECT_EQ(split_of("en/c4-train.00000-of-01024.json.gz"), "c4-train");
  for (const char* path : {"train.parquet", "0000.parquet", "00000-of-00001.parquet", "a-of-b.txt",
                           "one-of-2.txt", "-of-1.txt", "-of-", ""})
    EXPECT_EQ(split_of(path), "") << path;
  const std::initializer_list<const char*> many{"data/test_sft-00000-of-00001.parquet",
                                                "data/train_gen-00000-of-00001.parquet",
                                                "data/train_sft-00000-of-00001.parquet"};
  EXPECT_EQ(chosen(many, "train_sft"), Names{"data/train_sft-00000-of-00001.parquet"});
  expect_contains(user_error([&] { chosen(many, "train"); }), "has no configuration 'train'");
  // Not of all configurations together.
  expect_contains(
      user_error([] {
        chosen({"en/train-00000-of-00001.json", "fr/train-00000-of-00001.json"}, "train");
      }),
      "has several configurations: name one of en, fr");
}

TEST(HubListing, WhatItRefuses) {
  std::vector<HubFile> files;
  auto refuse = [&](std::string json) {
    std::string message = user_error([&] { parse_hub_tree(json, "http://hub", files); });
    expect_contains(message, "cannot use the answer of 'http://hub'");
  };
  std::string good = R"([{"type":"file","oid":"x","size":3,"path":"a/b"}])";
  parse_hub_tree(good, "hub", files);
  for (size_t size = 0; size < good.size(); ++size) refuse(good.substr(0, size));
  refuse("{}");
  refuse("[1]");
  refuse(R"([{"type":"file","size":3}])");
  refuse(R"([{"type":"file","size":-3,"path":"a"}])");
  refuse(R"([{"type":"file","size":1e3,"path":"a"}])");
  refuse(R"([{"type":"file","size":3,"path":"../a"}])");
  refuse(R"([{"type":"file","size":3,"path":"/a"}])");
  refuse(R"([{"type":"file","size":3,"path":"a//b"}])");
  refuse(R"([{"type":"file","size":3,"path":"a\u0000b"}])");
  refuse(R"([{"type":"file","size":3,"path":"a","lfs":{"oid":"short"}}])");
  refuse(std::string(5000, '['));
  EXPECT_EQ(files.size(), 1u);
  expect_contains(user_error([] { parse_hub_revision(R"({"sha":"../../x"})", "hub"); }),
                  "no commit");
}

class Hub : public testing::Test {
 protected:
  void repository(const std::string& name, const std::string& settings) {
    server_.write(cat("hub/", name, ".json"), settings);
  }

  LocalServer server_;
  RemoteOptions options_ = server_.options();
};

TEST_F(Hub, ListsPagesAndReadsFiles) {
  repository("datasets/o/n", R"({"revisions": ["main", "v2"], "page": 2, "token": "hf_secret"})");
  std::vector<std::string> contents;
  for (int i = 0; i < 5; ++i) {
    contents.push_back(test_content(2500, cat(i)));
    server_.write(cat("hub/datasets/o/n/main/data/train-", i, ".parquet"), contents.back());
  }
  server_.write("hub/datasets/o/n/main/README.md", "a card");
  options_.hub.token = "hf_secret";
  auto entries = list_files("hf://datasets/o/n", options_);
  ASSERT_EQ(entries.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(entries[i].path, cat("data/train-", i, ".parquet"));
    EXPECT_EQ(entries[i].size, 2500u);
    EXPECT_EQ(entries[i].sha256, hex(sha256(contents[i])));
    EXPECT_EQ(entries[i].revision.size(), 40u);
    EXPECT_EQ(read_all(*open_source(entries[i], options_)), contents[i]);
  }
  // The token goes to the hub alone; where it points is asked directly, once it is known.
  for (const auto& line : server_.requests("host=localhost")) expect_contains(line, "auth=- ");
  for (const auto& line : server_.requests("host=127.0.0.1")) expect_contains(line, "hf_secret");
  EXPECT_EQ(server_.requests("/resolve/").size(), 6u);  // the card, too
  EXPECT_EQ(server_.requests("/cdn/").size(), 15u);
  expect_contains(user_error([&] { open_source("hf://datasets/o/n", options_); }),
                  "stands for 5 files");
  expect_contains(user_error([&] { list_files("hf://datasets/o/n@v3", options_); }),
                  "status 404 (Invalid rev id)");
}

TEST_F(Hub, ALinkThatExpiresIsMadeAgain) {
  repository("datasets/o/n", R"({"revisions": ["main"], "uses": 2})");
  std::string content = test_content(6000);
  server_.write("hub/datasets/o/n/main/a.bin.gz", "");
  server_.write("hub/datasets/o/n/main/a.json.gz", content);
  auto entries = list_files("o/n", options_);
  ASSERT_EQ(entries.size(), 1u);
  options_.read_ahead = false;
  EXPECT_EQ(read_all(*open_source(entries[0], options_)), content);
  EXPECT_EQ(server_.requests("/resolve/").size(), 3u);
  EXPECT_EQ(server_.requests("status=403").size(), 2u);
  // A link that is never good is an error that shows no secret.
  repository("datasets/o/n", R"({"revisions": ["main"], "uses": 0})");
  options_.cache_directory += "x";
  std::string message = user_error([&] { read_all(*open_source(entries[0], options_)); });
  expect_contains(message, "status 403 (AccessDenied: Request has expired)");
  expect_lacks(message, "secret");
}

TEST_F(Hub, WhoHasNoAccessIsTold) {
  repository("models/o/gated", R"({"revisions": ["main"], "token": "hf_good"})");
  std::string message = user_error([&] { list_files("hf://o/gated", options_); });
  expect_contains(message, "status 401 (Invalid credentials); check the name; of what is private");
  expect_contains(message, "set HF_TOKEN");
  options_.hub.token = "hf_bad";
  message = user_error([&] { list_files("hf://o/gated", options_); });
  expect_contains(message, "the token in HF_TOKEN is valid");
  expect_lacks(message, "hf_bad");
  expect_contains(user_error([&] { list_files("hf://o/none", options_); }), "Repository not found");
}

TEST_F(Hub, FollowsARenamedRepositoryAndWaitsForItsLimit) {
  repository("datasets/wikicorpus", R"({"revisions": [], "moved": "c/wikicorpus"})");
  repository("datasets/c/wikicorpus",
             R"({"revisions": ["main", "refs/convert/parquet"], "limit": 1, "token": "hf_t"})");
  server_.write("hub/datasets/c/wikicorpus/main/wikicorpus.py", "a script");
  server_.write("hub/datasets/c/wikicorpus/refs_convert_parquet/raw_en/train/0000.parquet", "PAR1");
  server_.write("hub/datasets/c/wikicorpus/refs_convert_parquet/raw_es/train/0000.parquet", "PAR1");
  options_.hub.token = "hf_t";
  auto entries = list_files("wikicorpus", options_);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, "raw_en/train/0000.parquet");
  EXPECT_EQ(server_.requests("status=429").size(), 1u);
  repository("datasets/o/script", R"({"revisions": ["main"]})");
  server_.write("hub/datasets/o/script/main/script.py", "a script");
  expect_contains(user_error([&] { list_files("o/script", options_); }),
                  "has no data that can be read");
}

TEST_F(Hub, SaysWhereAConversionIsReadAndWhereThatIsPartial) {
  for (const char* name : {"whole", "part"})
    repository(cat("datasets/o/", name), R"({"revisions": ["main", "refs/convert/parquet"]})");
  auto write = [&](const char* file) { server_.write(cat("hub/datasets/o/", file), "PAR1"); };
  write("whole/main/script.py");
  write("whole/refs_convert_parquet/default/train/0000.parquet");
  write("part/main/script.py");
  write("part/refs_convert_parquet/default/partial-train/0000.parquet");
  auto log = [&](const char* name) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(list_files(name, options_).size(), 1u);
    return testing::internal::GetCapturedStderr();
  };
  const std::string whole = log("hf://datasets/o/whole"), part = log("hf://datasets/o/part");
  for (const std::string& text : {whole, part})
    expect_contains(text, "is read as the hub has converted it to Parquet (refs/convert/parquet)");
  expect_lacks(whole, "first part");
  expect_contains(part,
                  "'hf://datasets/o/part': the hub has converted the first part of it only "
                  "('default/partial-train/0000.parquet')");
  expect_contains(log("hf://datasets/o/part@refs/convert/parquet"), "the first part of it only");
}

TEST_F(Hub, PagesOfAnotherServerAreRefused) {
  repository("datasets/o/n", R"({"revisions": ["main"], "page": 1, "next_host": "localhost:1"})");
  server_.write("hub/datasets/o/n/main/a.parquet", "1");
  server_.write("hub/datasets/o/n/main/b.parquet", "2");
  expect_contains(user_error([&] { list_files("o/n", options_); }), "goes on at another server");
}

TEST_F(Hub, FetchesAModelWhole) {
  repository("models/o/m", R"({"revisions": ["main"]})");
  std::string weights = test_content(5200);
  server_.write("hub/models/o/m/main/model.bin", weights);
  server_.write("hub/models/o/m/main/config.json", "{\"a\": 1}");
  server_.write("hub/models/o/m/main/sub/empty.txt", "");
  auto entries = list_files("hf://o/m", options_);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].git_sha1.size(), 40u);
  fs::path directory = fetch_directory(entries, options_);
  EXPECT_EQ(read_file(directory / "model.bin"), weights);
  EXPECT_EQ(read_file(directory / "config.json"), "{\"a\": 1}");
  EXPECT_EQ(read_file(directory / "sub/empty.txt"), "");
  size_t requests = server_.requests().size();
  EXPECT_EQ(fetch_directory(entries, options_), directory);
  EXPECT_EQ(server_.requests().size(), requests);
  // A hash that does not fit, of either kind.
  entries[0].git_sha1 = std::string(40, '1');
  entries[1].sha256 = std::string(64, '1');
  expect_contains(user_error([&] { fetch_file(entries[0], options_); }), "instead of 1111");
  expect_contains(user_error([&] { fetch_file(entries[1], options_); }), "instead of 1111");
}

TEST_F(Hub, TakesWhatItsToolsHaveFetched) {
  repository("datasets/o/n", R"({"revisions": ["main"]})");
  server_.write("hub/datasets/o/n/main/train-0.parquet", "content 0");
  server_.write("hub/datasets/o/n/main/train-1.parquet", "content 1");
  std::string commit = list_files("o/n", options_)[0].revision;
  fs::path home = options_.hub.home / "hub" / "datasets--o--n";
  make_directories(home / "snapshots" / commit);
  make_directories(home / "refs");
  make_directories(home / "blobs");
  write_file_atomic(home / "blobs" / "1", "content 1");
  fs::create_symlink("../../blobs/1", home / "snapshots" / commit / "train-1.parquet");
  write_file_atomic(home / "refs" / "main", commit);
  auto entries = list_files("o/n", options_);
  ASSERT_EQ(entries.size(), 2u);
  expect_contains(entries[0].url, "http://");
  EXPECT_EQ(read_all(*open_source(entries[1], options_)), "content 1");
  EXPECT_TRUE(server_.requests("train-1").empty());

  options_.hub.offline = true;
  options_.hub.endpoint = "http://127.0.0.1:1";
  entries = list_files("o/n", options_);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, "train-1.parquet");
  EXPECT_EQ(entries[0].revision, commit);
  std::string message = user_error([&] { list_files("o/other", options_); });
  expect_contains(message, "HF_HUB_OFFLINE");
  expect_contains(message, "nothing on this machine has that path");
  expect_contains(user_error([&] { list_files("hf://datasets/o/n@v2", options_); }),
                  "'hf://datasets/o/n@v2' at 'v2' is not in");
  options_.hub.offline = false;
  options_.http.attempts = 1;
  expect_contains(user_error([&] { list_files("o/other", options_); }),
                  "nothing on this machine has that path");
  expect_lacks(user_error([&] { list_files("hf://datasets/o/other", options_); }), "that path");
}

}  // namespace
}  // namespace tessera
