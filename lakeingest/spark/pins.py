"""The SHA-256 of the release of each jar that a session may start with, by the jar's Maven coordinates.

A new version of a jar needs its digest here: `sha256sum` of the file at Maven Central.
"""

SHA256 = {
    "com.amazonaws:aws-java-sdk-bundle:1.12.262": "873fe7cf495126619997bec21c44de5d992544aea7e632fdc77adb1a0915bae5",
    "org.apache.hadoop:hadoop-aws:3.3.4": "53f9ae03c681a30a50aa17524bd9790ab596b28481858e54efd989a826ed3a4a",
    "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0": (
        "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676"
    ),
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0": (
        "8dd8c90e54ed1a20f2461309d047a255ee56382eb7c0a46162b27a4936fd86dc"
    ),
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.postgresql:postgresql:42.7.8": "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    "org.xerial:sqlite-jdbc:3.50.3.0": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
}
