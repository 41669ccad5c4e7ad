"""Settings of Spark for tests, whose jobs are small."""

# most of the time of a small job is the compiler's, and its second stage never pays there; nor do several threads that
# collect the garbage of two processes on two processors
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
