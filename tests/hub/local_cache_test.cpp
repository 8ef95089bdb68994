#include "hub/local_cache.h"

#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class LocalCache : public testing::Test {
 protected:
  // A snapshot of a model, as `hf download` leaves it.
  fs::path snapshot(const std::string& folder, const std::string& commit) {
    fs::path path = scratch_.path() / "hub" / folder / "snapshots" / commit;
    fs::create_directories(path);
    return path;
  }
  void set_main(const std::string& folder, const std::string& commit) {
    fs::path refs = scratch_.path() / "hub" / folder / "refs";
    fs::create_directories(refs);
    make_file(refs / "main", commit);
  }
  std::optional<fs::path> find(const std::string& name) const {
    return find_cached_model(name, scratch_.path());
  }

 private:
  ScratchDirectory scratch_;
};

TEST_F(LocalCache, FindsTheCommitOfMain) {
  fs::path old = snapshot("models--org--name", "aaa"), main = snapshot("models--org--name", "bbb");
  fs::last_write_time(old, fs::last_write_time(main) + std::chrono::hours(1));
  EXPECT_EQ(find("org/name"), old) << "without refs the newest";
  set_main("models--org--name", "bbb\n");
  EXPECT_EQ(find("org/name"), main);
  set_main("models--org--name", "../../../..");
  EXPECT_EQ(find("org/name"), old);
}

TEST_F(LocalCache, ANameAloneIsOneModel) {
  fs::path gpt2 = snapshot("models--openai-community--gpt2", "aaa");
  snapshot("models--someone--my-gpt2", "bbb");
  EXPECT_EQ(find("gpt2"), gpt2);
  snapshot("models--another--gpt2", "ccc");
  EXPECT_EQ(find("gpt2"), std::nullopt) << "which of the two?";
  fs::path own = snapshot("models--gpt2", "ddd");
  EXPECT_EQ(find("gpt2"), own);
}

TEST_F(LocalCache, WhatIsNoNameIsNotFound) {
  snapshot("models--org--name", "aaa");
  for (const char* name : {"", "/", "org/", "/name", "org/name/more", "../hub", "org/..", "a b",
                           "other/name", "ame"}) {
    EXPECT_EQ(find(name), std::nullopt) << name;
  }
  EXPECT_EQ(find_cached_model("org/name", "nowhere"), std::nullopt);
}

}  // namespace
}  // namespace tessera
