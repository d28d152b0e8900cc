#include "trireme/spec/offers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

std::vector<Offer> offers(const std::string& text, const OffersFilter& filter = {}) {
  return offers_from(CsvTable::parse(text, "offers.csv"), filter);
}

std::string refusal(const std::string& text, const OffersFilter& filter = {}) {
  try {
    offers(text, filter);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

TEST(Offers, ReadsOwnLayoutWithOptionalColumns) {
  const auto all =
      offers("instance,usd_per_hour,max_nodes,vcpus,spot_usd_per_hour\na,0.5,8,4,0.2\nb,1,2,,\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(
      all[0],
      (Offer{.instance = "a", .usd_per_hour = 0.5, .max_nodes = 8, .vcpus = 4, .spot_usd_per_hour = 0.2}));
  EXPECT_EQ(all[1], (Offer{.instance = "b", .usd_per_hour = 1, .max_nodes = 2}));
}

TEST(Offers, TakesTheCheapestZoneOfACatalogue) {
  const std::string catalogue =
      "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
      "AvailabilityZone\n"
      "p3,V100,1,8,61,\"{'Gpus': [{'Name': 'V100'}], 'n': 1}\",3.06,0.9,us-east-1,us-east-1a\n"
      "p3,V100,1,8,61,,3.10,0.8,us-east-1,us-east-1b\n"
      "p3,V100,1,8,61,,2.50,0.7,eu-west-1,eu-west-1b\n"
      "c5,,,2,4,,,0.03,us-east-1,us-east-1a\n";
  const auto all = offers(catalogue, {.instances = {}, .region = "us-east-1", .max_nodes = 16});
  ASSERT_EQ(all.size(), 1U);  // c5 has no price on demand
  EXPECT_EQ(all[0].usd_per_hour, 3.06);
  EXPECT_EQ(all[0].spot_usd_per_hour, 0.8);
  EXPECT_EQ(all[0].max_nodes, 16);
  EXPECT_THAT(refusal(catalogue, {.instances = {}, .region = "mars", .max_nodes = 1}),
              testing::HasSubstr("no priced type in region mars"));
}

TEST(Offers, RefusalsSayWhatAndWhere) {
  EXPECT_EQ(refusal("instance,usd_per_hour\na,1\n"),
            "offers.csv: no column max_nodes; there are instance, usd_per_hour");
  EXPECT_EQ(refusal("instance,usd_per_hour,max_nodes\na,-1,2\n"),
            "offers.csv:2: usd_per_hour = -1: must be above 0");
  EXPECT_EQ(refusal("instance,usd_per_hour,max_nodes\na,1,2\na,2,2\n"),
            "offers.csv:3: a is already in line 2; keep one of the two");
  EXPECT_EQ(refusal("instance,usd_per_hour,max_nodes\na,1,0\n"),
            "offers.csv:2: max_nodes = 0: must be at least 1");
  EXPECT_EQ(refusal("instance,usd_per_hour,max_nodes\n"), "offers.csv: no offers below the line of names");
  EXPECT_EQ(refusal("instance,usd_per_hour,max_nodes\nc5.large,1,2\n", {.instances = {"c5.larg"}}),
            "offers.csv: no type c5.larg (space.instances); did you mean c5.large?");
}

TEST(Offers, FilterKeepsTheNamedTypes) {
  const auto all = offers("instance,usd_per_hour,max_nodes\na,1,2\nb,1,2\n", {.instances = {"b"}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].instance, "b");
}

}  // namespace
}  // namespace trireme::spec
