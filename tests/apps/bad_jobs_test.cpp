// Jobs of several ranks that cannot begin: what all ranks say, and how long it takes them.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class BadJobs : public Ranks {
 protected:
  int port_ = free_port();
};

TEST_F(BadJobs, DifferentOptionsAreNamedOnEveryRank) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(start_rank(rank, 3, port_, job(1, {"--lr", rank == 2 ? "0.02" : "0.01"})));
  for (const ProgramResult& result : all_fail(ranks)) {
    expect_contains(result.message(),
                    "ranks 0 and 2 have different options: --lr 0.01 and --lr 0.02;");
  }
}

TEST_F(BadJobs, DifferentTransportsAreNamedOnEveryRank) {
  for (const ProgramResult& result :
       all_fail({start_rank(0, 2, port_, job(1, {"--distributed_backend", "gloo"})),
                 start_rank(1, 2, port_, job(1, {"--distributed_backend", "shared_memory"}))}))
    expect_contains(result.message(),
                    "rank 1 is to use the transport shared_memory and rank 0 gloo");
}

// Three jobs at once, since each of them ends at its deadline: in one a rank has another token, in
// one two never start, in one a rank is started twice and one not at all.
TEST_F(BadJobs, RanksThatDoNotJoin) {
  Words words = job(1, {"--comm_timeout", "10"});
  int few = free_port(), twice = free_port();
  std::vector<pid_t> token{start_rank(0, 2, port_, words),
                           start_rank(1, 2, port_, words, {{"TESSERA_JOB_TOKEN", "another"}})};
  std::vector<pid_t> missing{start_rank(0, 4, few, words), start_rank(2, 4, few, words)};
  std::vector<pid_t> twins{start_rank(0, 3, twice, words), start_rank(1, 3, twice, words),
                           start_rank(1, 3, twice, words, {}, "again")};

  auto results = all_fail(token);
  expect_contains(results[0].message(), "rank 1 of 2 has not arrived within 10 s");
  expect_contains(results[1].message(), "refused this process: another job's token");
  for (const ProgramResult& result : all_fail(missing))
    expect_contains(result.message(), "ranks 1, 3 of 4 have not arrived within 10 s");
  results = all_fail(twins);
  expect_contains(results[0].message(), "rank 2 of 3 has not arrived within 10 s");
  expect_contains(results[1].message() + results[2].message(), "rank 1 of 3 has joined already");
  expect_contains(results[1].message() + results[2].message(),
                  "rank 2 of 3 has not arrived within 10 s");
}

TEST_F(BadJobs, ALongWaitSaysWhomItIsFor) {
  const Words words = job(1, {"--comm_timeout", "600"});
  const std::string said = cat("port", port_, "rank");
  const pid_t early = start_rank(1, 3, port_, words);
  wait_for(said + "1.err", "Rank 1 tries for 600 s in all");
  expect_contains(read_file(path(said + "1.err")), cat("no store answered at 127.0.0.1:", port_));
  const pid_t first = start_rank(0, 3, port_, words);
  wait_for(said + "0.err", "Waiting for ranks: 2 of 3 are here, rank 2 is not");
  for (const pid_t rank : {first, early, start_rank(2, 3, port_, words)})
    EXPECT_EQ(finish(rank).status, 0);
}

TEST_F(BadJobs, NobodyServesTheStore) {
  ProgramResult result = all_fail({start_rank(1, 2, port_, job(1, {"--comm_timeout", "1"}))})[0];
  expect_contains(result.message(), cat("127.0.0.1:", port_));
}

TEST_F(BadJobs, PortInUse) {
  FileDescriptor other = listen_on({"127.0.0.1", 0});  // and never answers
  int port = local_port(other);
  Words words = job(1, {"--comm_timeout", "1"});
  auto results = all_fail({start_rank(0, 2, port, words), start_rank(1, 2, port, words)});
  expect_contains(results[0].message(), cat("127.0.0.1:", port, " is in use by another process"));
  expect_contains(results[1].message(), cat("127.0.0.1:", port));

  ProgramResult agent = run(Words{"run", "--nnodes", "1", "--nproc_per_node", "2", "--rdzv_backend",
                                  "c10d", "--rdzv_endpoint", cat("127.0.0.1:", port)} +
                            words);
  EXPECT_EQ(agent.status, 1);
  expect_contains(agent.message(), cat("127.0.0.1:", port, " is in use by another process"));
}

TEST_F(BadJobs, DegreesThatDoNotFitTheWorld) {
  struct Case {
    Words options;
    std::string message;
  };
  for (const Case& wrong :
       {Case{{"--tensor_parallel_degree", "4"}, "--tensor_parallel_degree 4 does not divide"},
        Case{{"--shard_degree", "3"}, "--shard_degree 3 does not divide the world of 2: give 1, 2"},
        Case{{"--tensor_parallel_degree", "2", "--num_heads", "3", "--num_key_value_heads", "1",
              "--hidden_width", "48"},
             "--tensor_parallel_degree 2 does not divide the 3 heads (num_heads)"}}) {
    int port = free_port();
    Words words = job(1, wrong.options);
    for (const ProgramResult& result :
         all_fail({start_rank(0, 2, port, words), start_rank(1, 2, port, words)})) {
      EXPECT_EQ(result.status, 2);
      expect_contains(result.message(), wrong.message);
    }
  }
  ProgramResult restarts =
      run(Words{"run", "--standalone", "--nproc_per_node", "2", "--max_restarts", "2"} +
          job(1, {"--tensor_parallel_degree", "4"}));
  EXPECT_EQ(restarts.status, 2) << "the next attempt would be the same";
  expect_lacks(restarts.out + restarts.err, "Restart 1 of");
}

}  // namespace
}  // namespace tessera
