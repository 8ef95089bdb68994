#include "hub/remote_model.h"

#include <gtest/gtest.h>

#include <set>

#include "remote/hub_files.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

constexpr ModelParts kAll{true, true, true};

TEST(RemoteModel, Names) {
  for (const char* name : {"o/n", "o/n@v1", "meta-llama/Llama-3.2-1B@refs/pr/3", "hf://gpt2",
                           "gpt2", "gpt2-xl@main", "hf://o/n", "https://h/m", "s3://bucket/m/"})
    EXPECT_TRUE(is_remote_model(name)) << name;
  ScratchDirectory here;
  for (std::string name :
       {std::string("gpt3"), std::string("llama2_7b"), std::string("byte"),
        std::string("tok/tokenizer.json"), std::string("./o/n"), std::string("/o/n"),
        std::string("a/b/c"), std::string("o/n@"), here.path().string()})
    EXPECT_FALSE(is_remote_model(name)) << name;
  const std::string commit(40, 'a');
  const std::string snapshot = cat("/c/hub/models--o--n-1/snapshots/", commit);
  EXPECT_EQ(model_name_of(snapshot), cat("hf://o/n-1@", commit));
  EXPECT_EQ(model_name_of(cat("/c/hub/models--gpt2/snapshots/", commit)),
            cat("hf://gpt2@", commit));
  for (std::string path : {std::string("models/o"), cat(snapshot, "x"), cat(snapshot, "/sub"),
                           cat("/c/hub/datasets--o--n/snapshots/", commit), std::string()})
    EXPECT_EQ(model_name_of(path), path);
}

class HubModel : public testing::Test {
 protected:
  void publish(const std::string& settings = R"({"revisions": ["main", "v2"]})") {
    server_.write("hub/models/o/m.json", settings);
  }
  void file(const std::string& name, std::string_view content) {
    server_.write(cat("hub/models/o/m/main/", name), content);
    server_.write(cat("s3/public/m/", name), content);
    server_.write(cat("files/m/", name), content);
  }
  void sharded() {
    file("config.json", "{}");
    file("tokenizer.json", "{}");
    file("model.safetensors.index.json",
         R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
    file("model-1.safetensors", "first");
    file("model-2.safetensors", "second");
    file("model-3.safetensors", "of nothing");
    file("onnx/model.safetensors", "elsewhere");
  }
  std::set<std::string> names(const fs::path& directory) {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (entry.is_regular_file()) found.insert(entry.path().lexically_relative(directory));
    }
    return found;
  }

  LocalServer server_;
  RemoteOptions options_ = server_.options();
};

TEST_F(HubModel, ShardsAreThoseOfTheIndex) {
  publish();
  sharded();
  const std::set<std::string> wanted{"config.json", "model-1.safetensors", "model-2.safetensors",
                                     "model.safetensors.index.json", "tokenizer.json"};
  for (std::string name : {std::string("o/m"), server_.other_url("/files/m"),
                           server_.other_url("/files/m/config.json"), std::string("s3://public/m")})
    EXPECT_EQ(names(fetch_model(name, kAll, options_)), wanted) << name;
  EXPECT_EQ(server_.requests("model-3").size(), 0u);
  fs::path directory = fetch_model("o/m", kAll, options_);
  EXPECT_EQ(read_file(directory / "model-2.safetensors"), "second");
  EXPECT_EQ(pin_model("o/m@main", kAll, options_), model_name_of(directory));
  EXPECT_EQ(pin_model("s3://public/m", kAll, options_), "s3://public/m");
  // A file that was damaged, or cleaned away, is fetched again.
  fs::resize_file(fs::canonical(directory / "model-1.safetensors"), 2);
  fs::remove(fs::canonical(directory / "config.json"));
  EXPECT_EQ(fetch_model("o/m", kAll, options_), directory);
  EXPECT_EQ(read_file(directory / "model-1.safetensors"), "first");
  EXPECT_EQ(read_file(directory / "config.json"), "{}");
}

TEST_F(HubModel, WhatIsNoModelIsRefused) {
  publish();
  file("README.md", "a card");
  auto refusal = [&](const std::string& name, ModelParts parts) {
    options_.cache_directory += "x";  // commits of the server do not tell contents
    return user_error([&] { fetch_model(name, parts, options_); });
  };
  expect_contains(refusal("o/m", {.configuration = true}), "'o/m' has no config.json");
  expect_contains(refusal("o/m", {.tokenizer = true}), "'o/m' has no file of a tokenizer");
  expect_contains(refusal(server_.other_url("/files/m"), {.configuration = true}),
                  "has no config.json");
  expect_contains(refusal("o/m", {.weights = true}), "has no weights");
  file("pytorch_model-00001-of-00002.bin", "pickled");
  expect_contains(
      refusal("o/m", {.weights = true}),
      "has no weights: there is none of model.safetensors, model.safetensors.index.json, "
      "pytorch_model.bin, pytorch_model.bin.index.json; check the name");
  EXPECT_EQ(server_.requests("pytorch").size(), 0u);
  file("model.safetensors.index.json", R"({"weight_map": {"a": "gone.safetensors"}})");
  expect_contains(refusal("o/m", {.weights = true}), "names 'gone.safetensors'");
  file("model.safetensors.index.json", R"({"weight_map": {"a": "../x.safetensors"}})");
  expect_contains(refusal("o/m", {.weights = true}), "model.safetensors.index.json");
  expect_contains(refusal("hf://datasets/o/m", kAll), "is a data set");
}

TEST_F(HubModel, AServerMayDenyWhatItDoesNotHave) {
  sharded();
  auto fetch = [&](const std::string& folder, ModelParts parts) {
    return fetch_model(server_.other_url(cat("/files/", folder, "?none=403")), parts, options_);
  };
  EXPECT_EQ(names(fetch("m", kAll)),
            (std::set<std::string>{"config.json", "model-1.safetensors", "model-2.safetensors",
                                   "model.safetensors.index.json", "tokenizer.json"}));
  for (ModelParts parts : {ModelParts{.configuration = true}, ModelParts{.tokenizer = true},
                           ModelParts{.weights = true}})
    expect_contains(user_error([&] { fetch("none", parts); }), "config.json': status 403");
  file("model.safetensors.index.json", R"({"weight_map": {"a": "gone.safetensors"}})");
  expect_contains(user_error([&] { fetch("m", kAll); }), "gone.safetensors': status 403");
}

TEST_F(HubModel, FilesOfTorchSaveAreTakenWhereThereAreNoOthers) {
  publish();
  file("config.json", "{}");
  file("pytorch_model.bin.index.json", R"({"weight_map": {"a": "pytorch_model-1.bin"}})");
  file("pytorch_model-1.bin", "first");
  file("pytorch_model-2.bin", "of no index");
  const ModelParts parts{.configuration = true, .weights = true};
  const std::set<std::string> wanted{"config.json", "pytorch_model-1.bin",
                                     "pytorch_model.bin.index.json"};
  for (std::string name : {std::string("o/m"), server_.other_url("/files/m")})
    EXPECT_EQ(names(fetch_model(name, parts, options_)), wanted) << name;
  file("model.safetensors", "safe");
  options_.cache_directory += "x";
  EXPECT_EQ(names(fetch_model("o/m", parts, options_)),
            (std::set<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(HubModel, ADamagedFileIsNotTaken) {
  publish(R"({"revisions": ["main"], "wrong_hash": ")" + std::string(64, '1') + R"("})");
  sharded();
  expect_contains(user_error([&] { fetch_model("o/m", kAll, options_); }), "instead of 1111");
  fs::path directory =
      model_snapshot(parse_hub_reference(pin_model("o/m", kAll, options_)), options_);
  EXPECT_FALSE(fs::exists(directory / "model-1.safetensors"));
}

TEST_F(HubModel, IsKnownWhereNobodyCanBeAsked) {
  publish();
  sharded();
  ModelParts small{.configuration = true, .tokenizer = true};
  fs::path directory = fetch_model("o/m", small, options_);
  size_t requests = server_.requests().size();
  options_.hub.offline = true;
  EXPECT_EQ(fetch_model("o/m", small, options_), directory);
  expect_contains(user_error([&] { fetch_model("o/m", kAll, options_); }),
                  "has not been fetched, and HF_HUB_OFFLINE");
  expect_contains(user_error([&] { fetch_model("o/m@v2", small, options_); }),
                  "'o/m@v2' at 'v2' is not in");
  EXPECT_EQ(server_.requests().size(), requests);
  // No network: the commit of the last time, and that of a name that says it, without a request.
  options_.hub.offline = false;
  options_.hub.endpoint = "http://127.0.0.1:1";
  options_.http.attempts = 1;
  EXPECT_EQ(fetch_model("o/m", small, options_), directory);
  EXPECT_EQ(fetch_model(model_name_of(directory), small, options_), directory);
  // A list that was damaged on the disk counts as none.
  write_file_atomic(directory.parent_path().parent_path() / "lists" / directory.filename(), "[{]");
  expect_contains(user_error([&] { fetch_model("o/m", small, options_); }), "HF_ENDPOINT");
}

TEST_F(HubModel, ATokenizerThatTheHubsToolsHaveNotFetchedIsFetched) {
  publish();
  file("config.json", "{}");
  file("generation_config.json", "{}");
  file("tokenizer_config.json", "{}");
  file("model.safetensors", "weights");
  const std::string pinned = pin_model("o/m", {.configuration = true}, options_);
  const std::string commit = pinned.substr(pinned.find('@') + 1);
  const fs::path home = options_.hub.home / "hub" / "models--o--m",
                 fetched = home / "snapshots" / commit;
  make_directories(fetched);
  make_directories(home / "refs");
  write_file_atomic(home / "refs" / "main", commit);
  std::set<std::string> names_there{"config.json", "generation_config.json", "model.safetensors",
                                    "tokenizer_config.json"};
  for (const std::string& name : names_there)
    write_file_atomic(fetched / name, name == "model.safetensors" ? "weights" : "{}");
  const ModelParts without{.configuration = true, .weights = true};
  const size_t requests = server_.requests().size();
  EXPECT_EQ(fetch_model("o/m", without, options_), fetched);
  // Nobody can be asked whether there is a tokenizer.
  options_.hub.offline = true;
  EXPECT_EQ(fetch_model("o/m", kAll, options_), fetched);
  EXPECT_EQ(pin_model("o/m", kAll, options_), pinned);
  options_.hub.offline = false;
  EXPECT_EQ(server_.requests().size(), requests);
  // There is none.
  EXPECT_EQ(names(fetch_model("o/m", kAll, options_)), names_there);
  EXPECT_EQ(pin_model("o/m", kAll, options_), pinned);
  options_.cache_directory += "x";  // where the list is that had none
  file("tokenizer.json", "{}");
  names_there.insert("tokenizer.json");
  EXPECT_EQ(names(fetch_model("o/m", kAll, options_)), names_there);
  EXPECT_EQ(server_.requests("model.safetensors").size(), 0u);
}

}  // namespace
}  // namespace tessera
