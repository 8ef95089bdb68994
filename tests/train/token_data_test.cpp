// Training on ids: files that other programs wrote, and synthetic ones.
#include "tests/remote/local_server.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

class TokenDataTest : public TrainingTest {
 protected:
  // Without a tokenizer: ids need none.
  RunConfig ids_options(int64_t steps, const std::string& dataset) const {
    RunConfig c = options(steps);
    c.dataset = dataset;
    c.tokenizer = "nowhere";
    return c;
  }
  // Ids as nanoGPT writes them.
  void write_ids(const std::string& file, const std::vector<int>& ids) const {
    std::string bytes;
    for (int id : ids) {
      bytes += static_cast<char>(id & 0xff);
      bytes += static_cast<char>(id >> 8);
    }
    write(file, bytes);
  }
  // What the tokenizer "byte" makes of text.txt.
  std::vector<int> ids_of_text() const {
    std::vector<int> ids;
    for (char c : read_file(path("text.txt"))) ids.push_back(static_cast<unsigned char>(c));
    ids.push_back(256);
    return ids;
  }
};

TEST_F(TokenDataTest, AFileOfIdsTrainsAsTheirText) {
  write_ids("ids.bin", ids_of_text());
  RunTrace text = train(options(6));
  RunConfig config = ids_options(6, path("ids.bin"));
  config.checkpoint_dir = {path("other")};
  RunTrace ids = train(config);
  EXPECT_EQ(ids.losses, text.losses);
  EXPECT_EQ(ids.validations, text.validations);  // the last hundredth, of both
  EXPECT_EQ(ids.fingerprint, text.fingerprint);
  ASSERT_EQ(ids.losses.size(), 6u);
}

TEST_F(TokenDataTest, ARunWithoutATokenizerResumes) {
  write_ids("ids.bin", ids_of_text());
  RunTrace whole = train(ids_options(6, path("ids.bin")));
  RunConfig config = ids_options(3, path("ids.bin"));
  config.checkpoint_dir = {path("parts")};
  train(config);
  config.max_steps = 6;
  config.resume_from_checkpoint = {path("parts")};
  EXPECT_EQ(train(config).fingerprint, whole.fingerprint);
}

TEST_F(TokenDataTest, AFileOnAServerNeedsNoTokenizerEither) {
  write_ids("ids.bin", ids_of_text());
  RunConfig config = ids_options(6, path("ids.bin"));
  config.checkpoint_dir.clear();
  const RunTrace here = train(config);
  LocalServer server;
  server.write("files/ids.bin", read_file(path("ids.bin")));
  config.dataset = config.validation_dataset = server.url("/files/ids.bin");
  EXPECT_FALSE(data_need_tokenizer(config));
  config.validation_dataset.clear();
  EXPECT_EQ(train(config).losses, here.losses);
  config.validation_dataset = path("text.txt");
  EXPECT_TRUE(data_need_tokenizer(config));
  config.validation_dataset = server.url("/files/text.txt");
  EXPECT_TRUE(data_need_tokenizer(config));
}

TEST_F(TokenDataTest, ALargeFileOnAServerIsNoStream) {
  write_ids("ids.bin", ids_of_text());
  LocalServer server;
  server.write("files/ids.bin", read_file(path("ids.bin")));
  RunConfig config = ids_options(6, server.url("/files/ids.bin"));
  std::vector<DataSource> sources = find_data_sources(config);
  sources.at(0).files.training.at(0).size = uint64_t{2} << 30;
  ThreadPool pool(1);
  // It is opened, and only then seen not to be that large.
  expect_contains(user_error([&] {
                    prepare_training_data(config, std::move(sources), nullptr,
                                          tiny_model().vocab_size, 16, pool);
                  }),
                  "ids.bin' has changed on its server");
}

TEST_F(TokenDataTest, ADirectoryOfIdsIsFoundByItsNameToo) {
  std::filesystem::create_directories(path("data/corpus"));
  std::vector<int> ids = ids_of_text();
  write_ids("data/corpus/train.bin", ids);
  write_ids("data/corpus/val.bin", {ids.begin(), ids.begin() + 100});
  RunConfig config = ids_options(3, path("data/corpus"));
  RunTrace by_path = train(config);
  config.dataset = "corpus";
  config.dataset_dir = path("data");
  config.checkpoint_dir = {path("other")};
  RunTrace by_name = train(config);
  EXPECT_EQ(by_name.fingerprint, by_path.fingerprint);
  EXPECT_EQ(by_name.validations, by_path.validations);
  EXPECT_EQ(by_name.validations.size(), 1u);
  EXPECT_EQ(lines_with(by_name.log, "val.bin").size(), 1u) << by_name.log;
  config.dataset = "other";
  config.checkpoint_dir.clear();
  expect_contains(failure(config), cat("cannot read 'other': there is no such file or directory, ",
                                       "nor --dataset_dir's '", path("data/other/train.bin"), "'"));
}

TEST_F(TokenDataTest, AnIdBehindTheVocabularyIsAnError) {
  write_ids("ids.bin", std::vector<int>(200, 60000));
  std::string message = failure(ids_options(3, path("ids.bin")));
  expect_contains(message, "ids.bin");
  expect_contains(message, "60000");
}

TEST_F(TokenDataTest, SyntheticDataNeedNoFiles) {
  RunConfig config = ids_options(4, "nowhere");
  config.use_synthetic_data = true;
  RunTrace whole = train(config);
  EXPECT_TRUE(whole.validations.empty());
  ASSERT_EQ(whole.losses.size(), 4u);
  config.checkpoint_dir = {path("parts")};
  config.max_steps = 2;
  train(config);
  config.max_steps = 4;
  config.resume_from_checkpoint = {path("parts")};
  EXPECT_EQ(train(config).fingerprint, whole.fingerprint);
}

TEST_F(TokenDataTest, TheNumberOfWindowsCanBeCapped) {
  RunConfig config = options(100);
  config.epochs = 2;
  config.max_dataset_len = 8;
  RunTrace trace = train(config);
  EXPECT_EQ(trace.steps, 4);  // twice 8 windows, 4 a step
  EXPECT_EQ(trace.tokens_seen, 2 * 8 * 16);
}

}  // namespace
}  // namespace tessera
