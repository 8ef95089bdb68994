#include "comm/job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Variables = std::map<std::string, std::string>;

const Variables kJob{{"RANK", "5"},
                     {"WORLD_SIZE", "8"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "node-0"},
                     {"MASTER_PORT", "29500"}};

// job_member_from_environment() with these variables and no others of its kind.
std::optional<JobMember> read(const Variables& variables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "TESSERA_JOB_TOKEN", "TESSERA_HOST_ID", "TESSERA_ATTEMPT",
                           "TESSERA_AGENT_STORE", "TESSERA_INTERFACE"}) {
    auto at = variables.find(name);
    if (at == variables.end()) {
      ::unsetenv(name);
    } else {
      ::setenv(name, at->second.c_str(), 1);
    }
  }
  return job_member_from_environment();
}

Variables changed(const std::string& name, const std::string& value) {
  Variables variables = kJob;
  variables[name] = value;
  return variables;
}

std::string usage_error(const Variables& variables) {
  return message_of<UsageError>([&] { read(variables); });
}

TEST(JobMember, AProcessOnItsOwnHasNone) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"LOCAL_RANK", "0"}, {"MASTER_PORT", "nonsense"}}));
}

TEST(JobMember, ReadsTheVariablesOfTorchrun) {
  JobMember job = read(kJob).value();
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 4);
  EXPECT_EQ(job.master_address, "node-0");
  EXPECT_EQ(job.master_port, 29500);
  EXPECT_EQ(job.token, "");
  EXPECT_EQ(job.attempt, 0);
  EXPECT_FALSE(job.agent_store);
  EXPECT_EQ(job.interface, "");
  EXPECT_FALSE(job.host_id.empty());
  EXPECT_EQ(job.host_id, read(kJob)->host_id);
}

TEST(JobMember, ReadsItsOwnVariables) {
  Variables variables = kJob;
  variables.merge(Variables{{"TESSERA_JOB_TOKEN", "secret"},
                            {"TESSERA_HOST_ID", "h1"},
                            {"TESSERA_ATTEMPT", "3"},
                            {"TESSERA_AGENT_STORE", "1"},
                            {"TESSERA_INTERFACE", "eth0"}});
  JobMember job = read(variables).value();
  EXPECT_EQ(job.token, "secret");
  EXPECT_EQ(job.host_id, "h1");
  EXPECT_EQ(job.attempt, 3);
  EXPECT_TRUE(job.agent_store);
  EXPECT_EQ(job.interface, "eth0");
}

TEST(JobMember, OneRankNeedsNoAddress) {
  JobMember job = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value();
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.master_address, "127.0.0.1");
}

TEST(JobMember, WithoutALocalWorldSizeItIsTheSmallestPossible) {
  EXPECT_EQ(read(changed("LOCAL_WORLD_SIZE", ""))->local_world_size, 2);
}

TEST(JobMember, NamesWhatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    std::string message = usage_error(changed(name, ""));
    EXPECT_TRUE(message.starts_with(cat("environment variable ", name, " is missing"))) << message;
  }
}

TEST(JobMember, NamesWhatIsOutOfRange) {
  struct Case {
    const char *name, *value, *range;
  };
  for (const Case& c : {Case{"WORLD_SIZE", "0", "1 to 1048576"},
                        {"WORLD_SIZE", "eight", "1 to 1048576"},
                        Case{"WORLD_SIZE", "99999999999999999999", "1 to 1048576"},
                        Case{"RANK", "8", "0 to 7"},
                        Case{"RANK", "-1", "0 to 7"},
                        Case{"RANK", "1.5", "0 to 7"},
                        Case{"RANK", " 1", "0 to 7"},
                        Case{"LOCAL_RANK", "4", "0 to 3"},
                        Case{"LOCAL_WORLD_SIZE", "9", "1 to 8"},
                        Case{"LOCAL_WORLD_SIZE", "0", "1 to 8"},
                        Case{"MASTER_PORT", "0", "1 to 65535"},
                        Case{"MASTER_PORT", "65536", "1 to 65535"},
                        Case{"TESSERA_ATTEMPT", "-1", "0 to 1000000000"},
                        Case{"TESSERA_AGENT_STORE", "yes", "0 to 1"}}) {
    EXPECT_EQ(usage_error(changed(c.name, c.value)),
              cat("environment variable ", c.name, " must be a number from ", c.range, ": it is '",
                  c.value, "'"));
  }
}

}  // namespace
}  // namespace tessera
