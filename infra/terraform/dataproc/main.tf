# The bucket, the secret and the accounts of lakeingest on Dataproc.

locals {
  # The name of the workflow, its clusters and its schedule, which take neither capitals nor _
  workflow = "lakeingest-${lower(replace(var.name, "_", "-"))}"
  # An account's id has 30 letters at most, and a name that is cut could be another pipeline's.
  id        = lower(replace(var.name, "_", "-"))
  short     = length(local.id) <= 19 ? local.id : "${substr(local.id, 0, 12)}-${substr(sha256(var.name), 0, 6)}"
  secret_id = var.secret == "" ? google_secret_manager_secret.password[0].id : var.secret
}

resource "google_storage_bucket" "lake" {
  count                       = var.make_bucket ? 1 : 0
  project                     = var.project
  name                        = var.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  lifecycle {
    prevent_destroy = true
  }
}

# It is empty, because what Terraform puts into a secret is readable in Terraform's state.
resource "google_secret_manager_secret" "password" {
  count     = var.secret == "" ? 1 : 0
  project   = var.project
  secret_id = "lakeingest-${var.name}"

  replication {
    auto {}
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "google_service_account" "job" {
  project      = var.project
  account_id   = "lakeingest-${local.short}"
  display_name = "Jobs of lakeingest ${var.name}"
}

resource "google_project_iam_member" "job" {
  project = var.project
  role    = "roles/dataproc.worker"
  member  = "serviceAccount:${google_service_account.job.email}"
}

resource "google_storage_bucket_iam_member" "job" {
  bucket = var.make_bucket ? google_storage_bucket.lake[0].name : var.bucket
  role   = "roles/storage.objectAdmin"
  member = "serviceAccount:${google_service_account.job.email}"
}

resource "google_secret_manager_secret_iam_member" "job" {
  secret_id = local.secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.job.email}"
}
