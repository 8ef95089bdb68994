// What can be wrong with an etcd: said in time, and never a wait without an end.
#include <gtest/gtest.h>

#include "base/file.h"
#include "comm/tcp_store.h"
#include "launch/etcd_membership_store.h"
#include "launch/membership_state.h"
#include "tests/base/error_expectation.h"
#include "tests/comm/free_port.h"
#include "tests/launch/agent_fixture.h"
#include "tests/launch/etcd_fixture.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(EtcdAnswer, WhatTheGatewaySays) {
  auto range = parse_etcd_answer(
      R"({"header":{"revision":"7"},"kvs":[{"key":"a2V5","mod_revision":"5","value":"dg=="},)"
      R"({"key":"aw==","mod_revision":"6"}],"count":"2"})");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->revision, 7);
  ASSERT_EQ(range->values.size(), 2U);
  EXPECT_EQ(range->values[0].key, "key");
  EXPECT_EQ(range->values[0].value, "v");
  EXPECT_EQ(range->values[0].mod_revision, 5);
  EXPECT_EQ(range->values[1].value, "");
  EXPECT_FALSE(parse_etcd_answer(R"({"header":{}})")->succeeded);
  EXPECT_TRUE(parse_etcd_answer(R"({"succeeded":true})")->succeeded);
  // A lease that has run out: no TTL.
  EXPECT_EQ(parse_etcd_answer(R"({"result":{"ID":"12","TTL":"3"}})")->ttl, 3);
  EXPECT_EQ(parse_etcd_answer(R"({"result":{"ID":"12"}})")->ttl, 0);
  EXPECT_EQ(parse_etcd_answer(R"({"error":"no","code":5})")->code, 5);
  EXPECT_EQ(parse_etcd_answer(R"({"error":{"message":"no"}})")->error, "no");
  for (const char* bad :
       {"", "[]", "{", "404 page not found", R"({"kvs":[{"key":"?"}]})", R"({"kvs":[1]})",
        R"({"TTL":"x"})", R"({"succeeded":3})", R"({"header":3})"}) {
    EXPECT_FALSE(parse_etcd_answer(bad)) << bad;
  }
}

class Etcd : public AgentTest {
 protected:
  void SetUp() override {
    if (EtcdCluster::program().empty())
      GTEST_SKIP() << "etcd is not installed (tools/packages install etcd)";
  }
  // Given up soon; jobs that are to succeed have more time.
  static Words job(const std::string& endpoint, const std::string& more = "") {
    return {"--nnodes=1:2", "--rdzv_backend=etcd", cat("--rdzv_endpoint=", endpoint),
            "--rdzv_id=job",
            cat("--rdzv_conf=join_timeout=2,last_call_timeout=0.1,keep_alive_interval=0.3,"
                "keep_alive_max_attempt=100",
                more.empty() ? "" : ",", more)};
  }
  // Until so many nodes have put themselves down for the first round.
  static void wait_for_members(EtcdCluster& etcd, size_t count) {
    EtcdMembershipStore store(std::make_unique<EtcdClient>(etcd.endpoints(), EtcdAccess{}), "job",
                              1s);
    EXPECT_TRUE(comes_true([&] {
      const auto state = MembershipState::from_text(store.read().text);
      return state && state->members.size() >= count;
    })) << "no "
        << count << " nodes";
  }
  std::string error_of(const Words& words) {
    auto begin = steady_clock::now();
    Result result = run(words + Words{"train", "print", "trained"});
    EXPECT_LT(steady_clock::now() - begin, 60s);
    EXPECT_EQ(result.status, 1);
    expect_lacks(result.out, "trained");
    return result.err;
  }
};

TEST_F(Etcd, NobodyThere) {
  std::string text = error_of(job(cat("127.0.0.1:", free_port())));
  expect_contains(text, "etcd does not answer: http://127.0.0.1:");
  expect_contains(text, "does it run there, and can this host reach it? (tried for 2 s)");
}

TEST_F(Etcd, ANameThatDoesNotResolve) {
  expect_contains(error_of(job("no-such-host.invalid:2379")),
                  "http://no-such-host.invalid:2379: Could not resolve host");
}

TEST_F(Etcd, AnotherProgram) {
  TcpStoreServer other("token");
  expect_contains(error_of(job(cat("127.0.0.1:", other.port()))), "etcd does not answer");
}

TEST_F(Etcd, OneThatNeverAnswers) {
  FileDescriptor silent = listen_on({"127.0.0.1", 0});
  expect_contains(error_of(job(cat("127.0.0.1:", local_port(silent)))), "timed out");
}

// Without a quorum a member lets its callers wait for 7 s.
TEST_F(Etcd, WithoutAQuorum) {
  EtcdCluster etcd(3);
  etcd.kill(0);
  etcd.kill(1);
  error_of(job(etcd.endpoints_text()));
  etcd.start(0);
  etcd.wait_until_it_answers();
  Result result =
      run(job(etcd.endpoints_text(), "timeout=60") + Words{"train", "print", "trained"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "trained");
}

// The first node of a new job serves the first round, and the others do not reach it.
TEST_F(Etcd, WhomTheOthersDoNotReachServesNoLaterRound) {
  EtcdCluster etcd(1);
  Words words = job(etcd.endpoints_text(), "join_timeout=6,last_call_timeout=60");
  words[0] = "--nnodes=1:3";
  words = words + Words{"train", "print", "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT"};
  const pid_t a = start(Words{"--local_addr=127.0.0.2"} + words, "a");
  wait_for_members(etcd, 1);
  const std::string cut = "LAUNCH_CUT=127.0.0.2";
  const pid_t b = start(words, "b", {cut}), c = start(words, "c", {cut});
  std::string all;
  for (const pid_t agent : {a, b, c}) {
    const Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
    all += result.out;
  }
  for (int rank : {0, 1, 2}) expect_contains(all, cat(rank, "/3 round 1"));
}

TEST_F(Etcd, UsersAndPasswords) {
  EtcdCluster etcd(1);
  EtcdClient admin(etcd.endpoints(), {});
  admin.call("auth/user/add", R"({"name":"root","password":"secret"})");
  admin.call("auth/user/grant", R"({"user":"root","role":"root"})");
  admin.call("auth/user/add", R"({"name":"guest","password":"guest"})");
  admin.call("auth/enable", "{}");
  std::string good = path("good"), bad = path("bad"), open = path("open"), guest = path("guest");
  for (const auto& [file, text] : std::map<std::string, std::string>{
           {good, "secret\n"}, {bad, "sekret\n"}, {open, "secret\n"}, {guest, "guest"}}) {
    write_file_atomic(file, text);
    std::filesystem::permissions(file, std::filesystem::perms(file == open ? 0644 : 0600));
  }
  std::string place = etcd.endpoints_text();
  expect_contains(error_of(job(place)), "give --rdzv_conf user=NAME,password_file=FILE");
  std::string refused = error_of(job(place, cat("user=root,password_file=", bad)));
  expect_contains(refused, "refuses the user 'root'");
  expect_lacks(refused, "sekret");
  expect_contains(error_of(job(place, cat("user=root,password_file=", open))), "chmod 600");
  expect_contains(error_of(job(place, cat("user=guest,password_file=", guest))),
                  "may the user 'guest' read and write keys that begin with /tessera/?");
  Result result = run(job(place, cat("timeout=60,user=root,password_file=", good)) +
                      Words{"train", "print", "trained"});
  EXPECT_EQ(result.status, 0) << result.err;

  // Tokens are gone with the process of etcd: the user is asked for again.
  EtcdAccess access;
  access.user = "root";
  access.password_file = good;
  EtcdMembershipStore store(std::make_unique<EtcdClient>(etcd.endpoints(), access), "x", 20s);
  store.appear("node");
  etcd.kill(0);
  EXPECT_THROW(store.read(), MembershipUnavailableError);
  etcd.start(0);
  EXPECT_TRUE(comes_true([&] {
    try {
      store.keep_alive();
      return true;
    } catch (const MembershipUnavailableError&) {
      return false;
    }
  }));
  EXPECT_EQ(store.present({"node"}).size(), 1U);
}

// As by a pod of etcd that is replaced: the job tells the new one what it must know.
TEST_F(Etcd, OneThatForgets) {
  EtcdCluster etcd(1);
  Words words = job(etcd.endpoints_text(), "timeout=60") + Words{"train", "on_term", "143"};
  words[0] = "--nnodes=1:3";
  words = words + Words{"print",   "/%WORLD_SIZE round %TESSERA_ATTEMPT %TESSERA_JOB_ID",
                        "attempt", "0",
                        "hang",    "end"};
  pid_t a = start(words, "a");
  std::string id =
      wait_for("a.out", "/1 round 0 ").substr(std::string("[rank 0] /1 round 0 ").size());
  etcd.kill(0);
  etcd.forget(0);
  etcd.start(0);
  etcd.wait_until_it_answers();
  EtcdMembershipStore probe(std::make_unique<EtcdClient>(etcd.endpoints(), EtcdAccess{}), "job",
                            1s);
  EXPECT_TRUE(comes_true([&] { return probe.read().version != 0; }));
  pid_t b = start(words, "b");
  for (pid_t agent : {a, b}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, cat("/2 round 1 ", id));
  }
}

// The others do not wait for it longer than its lease does.
TEST_F(Etcd, ANodeThatDiesBeforeItsRoundMeetsIsReplaced) {
  EtcdCluster etcd(1);
  Words words =
      job(etcd.endpoints_text(), "timeout=60,keep_alive_interval=1,keep_alive_max_attempt=3") +
      Words{"train", "print", "rank %RANK"};
  words[0] = "--nnodes=3";
  pid_t a = start(words, "a");
  wait_for("a.err", "1 of at least 3 are here");
  pid_t b = start(words, "b");
  wait_for_members(etcd, 2);
  ::kill(b, SIGKILL);
  finish(b);
  auto begin = steady_clock::now();
  pid_t c = start(words, "c"), d = start(words, "d");
  std::string all;
  for (pid_t agent : {a, c, d}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
    all += result.out;
  }
  EXPECT_LT(steady_clock::now() - begin, 25s);  // a round with it would be given up after 30 s
  for (int rank : {0, 1, 2}) expect_contains(all, cat("rank ", rank, "\n"));
}

TEST_F(Etcd, TwoNodesOfOneNumber) {
  EtcdCluster etcd(1);
  Words words = job(etcd.endpoints_text());
  words[0] = "--nnodes=2";
  words.push_back("--node_rank=1");
  // More than the second may be late by, and for an earlier start to be known as gone.
  words.push_back("--rdzv_conf=join_timeout=8,keep_alive_max_attempt=3");
  pid_t a = start(words + Words{"train"}, "a"), b = start(words + Words{"train"}, "b");
  auto begin = steady_clock::now();
  Result one = finish(a), other = finish(b);
  EXPECT_LT(steady_clock::now() - begin, 60s);
  EXPECT_EQ(one.status + other.status, 2);
  expect_contains(one.err + other.err, "a node with --node_rank 1 has already joined at");
}

// The certificate of a name that is not the endpoint's is refused, and so is plain text.
TEST_F(Etcd, Tls) {
  std::string key = path("key.pem"), certificate = path("certificate.pem");
  std::string make =
      cat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
          "/CN=etcd "
          "-addext subjectAltName=IP:127.0.0.1 -keyout ",
          key, " -out ", certificate, " >/dev/null 2>&1");
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl to make a certificate with";
  EtcdCluster etcd(1,
                   {"--cert-file", certificate, "--key-file", key, "--client-cert-auth",
                    "--trusted-ca-file", certificate},
                   "https");
  Words train{"train", "print", "trained"};
  std::string tls = cat("protocol=https,cacert=", certificate, ",cert=", certificate, ",key=", key,
                        ",timeout=60");
  Result result = run(job(etcd.endpoints_text(), tls) + train);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(error_of(job(etcd.endpoints_text(), "protocol=https")), "certificate");
  expect_contains(error_of(job(etcd.endpoints_text())), "127.0.0.1:");
}

}  // namespace
}  // namespace tessera
