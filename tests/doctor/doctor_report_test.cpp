// What the doctor says of a cluster, of which everything is known here.
#include "doctor/doctor_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json healthy(int ranks) {
  Json found{{"ranks", Json::array()}, {"links", Json::array()}, {"directories", Json::array()}};
  Json seen = Json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    found["ranks"].push_back(
        {{"host", cat("node", rank)},
         {"cores", 96},
         {"usable_cores", 96},
         {"memory", int64_t{1} << 38},
         {"available_memory", int64_t{1} << 37},
         {"memory_limit", nullptr},
         {"locked_memory_limit", nullptr},
         {"open_files_limit", 1024},
         {"huge_pages", "madvise"},
         {"shared_memory", {{"bytes", 1 << 30}, {"free", 1 << 30}}},
         {"interfaces",
          Json::array({{{"name", "eth0"}, {"address", "10.0.0.1"}, {"up", true}, {"gbit", 25}}})},
         {"gpus", 0},
         {"gpu_driver", ""},
         {"nccl", ""},
         {"nccl_plugin", ""},
         {"efa_devices", 0},
         {"xla_plugins", Json::array()},
         {"clock_offset", 0.001},
         {"matrix_flops", 1e12 + rank * 1e10},
         {"threads", 96},
         {"isa", "amx"}});
    seen.push_back({{"sees_same_files", true}, {"free", 1 << 30}, {"write", 1e9}, {"read", 2e9}});
    for (int other = 0; other < rank; ++other) {
      found["links"].push_back(
          {{"ranks", {other, rank}}, {"latency", 2e-5 + other * 1e-6}, {"bandwidth", 3e9}});
    }
  }
  found["directories"].push_back({{"path", "/shared"}, {"ranks", seen}});
  return found;
}

// The only warning.
std::string warning(const Json& found) {
  const std::vector<std::string> all = doctor_warnings(found);
  EXPECT_EQ(all.size(), 1u) << join(all, "\n");
  return all.empty() ? "" : all[0];
}

TEST(Doctor, HasNothingToSayOfAHealthyCluster) {
  for (int ranks : {1, 2, 3, 40}) {
    const Json found = healthy(ranks);
    EXPECT_TRUE(doctor_warnings(found).empty());
    const std::string page = doctor_page(found, {});
    expect_contains(page, "Nothing stands out.");
    expect_contains(page, "eth0 10.0.0.1 25 Gbit/s; no GPU");
    expect_contains(page, "a rank writes 1.00 GB/s");
    if (ranks == 40) expect_contains(page, "and 24 ranks more");
    if (ranks == 40) expect_contains(page, "780 links: ");
    if (ranks == 3) expect_contains(page, "all see the same files");
  }
}

TEST(Doctor, NamesARankWhoseLinksAreSlow) {
  Json found = healthy(3);
  for (Json& link : found["links"])
    if (link["ranks"][1] == 2) link["bandwidth"] = 1e8;
  EXPECT_EQ(warning(found),
            "rank 2 (node2): its links are slow, at best 0.10 GB/s of the usual 3.00 GB/s");
  found = healthy(4);
  for (Json& link : found["links"])
    if (link["ranks"][1] == 3) link["latency"] = 2e-3;
  expect_contains(warning(found), "rank 3 (node3): its links are late, at best 2000 us where");
}

TEST(Doctor, NamesOneSlowLink) {
  Json found = healthy(4);
  found["links"][1]["bandwidth"] = 1e9;  // 0 and 2
  EXPECT_EQ(warning(found),
            "rank 0 (node0): its link to rank 2 (node2) is slow: 1.00 GB/s of the usual 3.00 GB/s");
}

TEST(Doctor, LinksWithinAHostAreNotComparedWithThoseBetweenHosts) {
  Json found = healthy(4);
  for (int rank : {0, 1}) found["ranks"][static_cast<size_t>(rank)]["host"] = "node0";
  found["links"][0]["bandwidth"] = 5e10;
  EXPECT_TRUE(doctor_warnings(found).empty());
}

TEST(Doctor, NamesSlowAndDifferentRanks) {
  Json found = healthy(3);
  found["ranks"][1]["matrix_flops"] = 4e11;
  expect_contains(warning(found),
                  "rank 1 (node1): its matrix product is slow, 400 GFLOP/s of the usual 1000");
  found = healthy(3);
  found["ranks"][2]["isa"] = "avx512_bf16";
  expect_contains(warning(found), "rank 2 (node2): has other instructions");
  found = healthy(3);
  found["ranks"][0]["usable_cores"] = 8;
  expect_contains(warning(found),
                  "rank 0 (node0): has other cores that it may use: 8, most have 96");
  found = healthy(3);
  found["ranks"][2]["clock_offset"] = -2.5;
  expect_contains(warning(found), "rank 2 (node2): its clock is 2.500 s behind that of rank 0");
}

TEST(Doctor, NamesWhatIsWrongWithADirectory) {
  Json found = healthy(3);
  Json& ranks = found["directories"][0]["ranks"];
  ranks[1]["sees_same_files"] = false;
  expect_contains(warning(found), "rank 1 (node1): sees other files in '/shared' than rank 0");
  ranks[1] = {{"error", "cannot write '/shared/x': Permission denied"}};
  expect_contains(warning(found), "rank 1 (node1): cannot use '/shared': cannot write");
  expect_contains(doctor_page(found, doctor_warnings(found)), "1 warning\n  rank 1 (node1)");
  found = healthy(3);
  found["directories"][0]["ranks"][0] = {{"error", "cannot write '/shared/x': Permission denied"}};
  for (size_t rank : {1, 2}) found["directories"][0]["ranks"][rank].erase("sees_same_files");
  expect_contains(warning(found), "rank 0 (node0): cannot use '/shared': cannot write");
  EXPECT_EQ(doctor_warnings(found).size(), 1u);
  EXPECT_EQ(doctor_page(found, {}).find("see the same files"), std::string::npos);
  found = healthy(3);
  found["directories"][0]["ranks"][2]["read"] = 5e8;
  expect_contains(warning(found), "rank 2 (node2): is slow to read in '/shared': 0.50 GB/s");
}

TEST(Doctor, NamesSocketsBehindEfa) {
  Json found = healthy(1);
  Json& host = found["ranks"][0];
  host.update({{"gpus", 8}, {"gpu_driver", "535.1"}, {"nccl", "2.18.5"}, {"efa_devices", 4}});
  expect_contains(warning(found), "it falls back to sockets without a word");
  host["nccl_plugin"] = "libnccl-net.so";
  EXPECT_TRUE(doctor_warnings(found).empty());
  expect_contains(doctor_page(found, {}),
                  "8 GPUs, driver 535.1, NCCL 2.18.5, libnccl-net.so, 4 EFA devices");
  host["locked_memory_limit"] = 65536;
  expect_contains(warning(found), "only 64.0 KiB may be locked");
  host.update({{"locked_memory_limit", nullptr}, {"nccl", ""}});
  expect_contains(warning(found), "no libnccl.so.2");
}

TEST(Doctor, NamesPluginsOfXla) {
  Json found = healthy(2);
  EXPECT_EQ(doctor_page(found, {}).find("plug-ins"), std::string::npos);
  found["ranks"][0]["xla_plugins"] = {{{"error", ""}, {"text", "cpu, interface 0.81, 'a.so'"}}};
  EXPECT_TRUE(doctor_warnings(found).empty());
  expect_contains(doctor_page(found, {}),
                  "plug-ins of XLA\n  node0: cpu, interface 0.81, 'a.so'\n");
  found["ranks"][1]["xla_plugins"] = {{{"error", "cut"}, {"text", "'a.so' does not load: cut"}}};
  expect_contains(warning(found), "rank 1 (node1): plug-in of XLA: 'a.so' does not load: cut");
}

}  // namespace
}  // namespace tessera
