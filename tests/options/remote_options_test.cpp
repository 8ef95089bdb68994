#include "options/remote_options.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/base/scratch_directory.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

TEST(RemoteOptions, ComeFromTheOptionsAndTheUsualVariables) {
  for (const char* name : {"HF_TOKEN", "HF_HOME", "AWS_ENDPOINT_URL_S3"}) ::unsetenv(name);
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1/", 1);
  ::setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2", 1);
  ScratchDirectory home;
  home.write("token", "hf_of_this_home\n");
  RemoteOptions options =
      remote_options(option_testing::parse({"--cache_dir", "below", "--max_cache_size", "3GiB",
                                            "--hf_home", home.path().string()})
                         .config);
  EXPECT_EQ(options.cache_directory, "below");
  EXPECT_EQ(options.cache_bytes, uint64_t{3} << 30);
  EXPECT_EQ(options.hub.home, home.path());
  EXPECT_EQ(options.hub.token, "hf_of_this_home");
  EXPECT_EQ(options.hub.endpoint, "http://127.0.0.1:1");
  EXPECT_EQ(options.s3.endpoint, "http://127.0.0.1:2");
  EXPECT_EQ(remote_options(RunConfig{}).cache_bytes, RemoteOptions{}.cache_bytes);
}

}  // namespace
}  // namespace tessera
